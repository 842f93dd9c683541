"""Two brokers replicate topics to another cluster, a broker of Pharos by itself, while one after the other is killed, stopped and paused. See
run.sh.

The other cluster must have what is in the topics here, each message once and in order, whichever broker owned them in between.
"""

import json
import os
import signal
import sys
import time

import pulsar

from load import Publisher, everything_in
from scene import TAKEOVER_MAX, both_serve, connect, ok
from servers import SESSION, Broker, Cluster, Hosts, free_ports, until

NAMESPACE = "public/geo"
TOPICS = [f"persistent://{NAMESPACE}/t{number}" for number in range(4)]
# Its publisher is gone, and no client asks for it.
QUIET = f"persistent://{NAMESPACE}/quiet"
KEPT = json.dumps({"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}).encode()


def order(broker, method, path, body=None):
    status, reason = broker.ask(path, method, None if body is None else json.dumps(body).encode())
    assert status in (200, 204), (method, path, status, reason)


def stats_of(broker, topic):
    status, stats = broker.ask("/admin/v2/" + topic.replace("://", "/") + "/stats")
    return stats if status == 200 else {}


class West(Broker):
    """The other cluster. It misses a broker that is paused within seconds, and drops what comes twice."""

    def __init__(self, pharos, folder):
        settings = [
            "--data-dir", os.path.join(folder, "west"), "--cluster-name", "west", "--policies-deduplication=true",
            "--keep-alive-interval", "5s",
        ]
        super().__init__("-west", [pharos], folder, "127.0.0.1", free_ports(2), settings)

    def counts(self):
        return {topic: stats_of(self, topic).get("msgInCounter", 0) for topic in TOPICS}


def make(cluster, west):
    one, two = cluster.brokers
    order(west, "PUT", f"/admin/v2/namespaces/{NAMESPACE}", {})
    order(west, "POST", f"/admin/v2/namespaces/{NAMESPACE}/retention", json.loads(KEPT))
    order(one, "PUT", "/admin/v2/clusters/west", {"brokerServiceUrl": west.url})
    order(one, "POST", "/admin/v2/tenants/public", {"adminRoles": [], "allowedClusters": ["standalone", "west"]})
    path = f"/admin/v2/namespaces/{NAMESPACE}"
    until("the cluster is known", lambda: two.ask("/admin/v2/clusters/west")[0] == 200)
    order(one, "PUT", path, {"bundles": {"numBundles": 8}})
    order(one, "POST", f"{path}/retention", json.loads(KEPT))
    order(one, "POST", f"{path}/replication", ["standalone", "west"])
    until("the policy is known", lambda: "west" in str(two.ask(f"{path}/replication")[1]))


def arrives(west, what, seconds=TAKEOVER_MAX):
    """Waits until each topic's messages come over there again."""
    before = west.counts()
    until(what, lambda: all(count >= before[topic] + 100 for topic, count in west.counts().items()), seconds)


def owned_by(cluster, broker):
    return [topic for topic in [*TOPICS, QUIET] if broker.owner_of(topic) == broker.url]


def take_all(cluster, broker):
    """A broker gets every topic."""
    for topic in [*TOPICS, QUIET]:
        asked = next(other for other in cluster.brokers if other is not broker)
        if until("it is owned", lambda: broker.owner_of(topic)) == broker.url:
            continue
        bundle = asked.ask("/lookup/v2/topic/" + topic.replace("://", "/") + "/bundle")[1].strip('"')
        order(asked, "PUT", f"/admin/v2/namespaces/{NAMESPACE}/{bundle}/unload?destinationBroker={broker.id}")
        until("it is taken", lambda: broker.owner_of(topic) == broker.url)


def compare(client, there, publisher):
    """What is in a topic here and there, message by message."""
    topic = publisher.topic
    log = everything_in(client, topic)
    at = {place: number for number, place in log}
    wrong = [number for number, place in publisher.receipts.items() if at.get(place) != number]
    assert not wrong, f"{topic}: acknowledged and not where the receipt says: {wrong[:10]}"
    found = lambda: [number for number, _ in everything_in(there, topic)]
    here, over_there = [number for number, _ in log], found()
    end = time.monotonic() + 60
    while len(over_there) < len(here) and time.monotonic() < end:
        time.sleep(1)
        over_there = found()
    if over_there != here:
        first = next((i for i, (a, b) in enumerate(zip(here, over_there)) if a != b), min(len(here), len(over_there)))
        raise AssertionError(
            f"{topic}: {len(over_there)} of {len(here)} are there; other from {first} on: {here[first:first + 8]} here, {over_there[first:first + 8]} there"
        )
    return len(here)


def ready(broker):
    until("it is there again", lambda: broker.ask("/admin/v2/brokers/ready")[0] == 200)


def quiet_goes_on(cluster, west, client):
    """What no client asks for is sent by the next owner."""
    one, two = cluster.brokers
    publisher = Publisher(client, QUIET, rate=500)
    until("it comes", lambda: stats_of(west, QUIET).get("msgInCounter", 0) > 100)
    west.kill()
    more = publisher.answered() + 500
    until("receipts come", lambda: publisher.answered() > more)
    publisher.finish()
    owner = next(broker for broker in cluster.brokers if broker.url == one.owner_of(QUIET))
    owner.send(signal.SIGKILL)
    owner.process.wait()
    west.start()
    there = connect(west.url)
    wanted = max(publisher.receipts)
    until("the rest comes", lambda: max((n for n, _ in everything_in(there, QUIET)), default=-1) == wanted, TAKEOVER_MAX + 60)
    there.close()
    ok("another broker sends what a dead one had to send, without a client", f"{len(publisher.receipts)} messages")
    owner.start()
    ready(owner)
    return publisher


def main():
    pharos, jars, folder = sys.argv[1:]
    west = West(pharos, folder)
    try:
        with Cluster(Hosts(pharos), jars, folder) as cluster:
            tell(cluster, west)
    except BaseException:
        print(f"---- west\n{west.tail(60)}", flush=True)
        raise
    finally:
        if west.process is not None:
            west.kill()


def tell(cluster, west):
    west.start()
    both_serve(cluster)
    make(cluster, west)
    one, two = cluster.brokers
    for topic in [*TOPICS, QUIET]:
        assert until("it is owned", lambda: one.owner_of(topic)) == one.url
    client = connect(cluster.url)
    publishers = [Publisher(client, topic) for topic in TOPICS]
    arrives(west, "messages come")
    ok("two brokers replicate to another cluster")

    one.send(signal.SIGKILL)
    one.process.wait()
    arrives(west, "messages come after a kill")
    ok("replication goes on when the owner is killed")

    one.start()
    ready(one)
    assert owned_by(cluster, two) == [*TOPICS, QUIET]
    two.stop()
    arrives(west, "messages come after a stop")
    ok("replication goes on when the owner is stopped")

    two.start()
    ready(two)
    take_all(cluster, two)
    arrives(west, "messages come after a hand-over")
    ok("replication goes on when its topics are handed over")

    two.send(signal.SIGSTOP)
    began = time.monotonic()
    until("the other broker takes them", lambda: one.owner_of(TOPICS[0]) == one.url, TAKEOVER_MAX)
    arrives(west, "messages come while the last owner is paused", TAKEOVER_MAX + 60)
    paused = time.monotonic() - began
    two.send(signal.SIGCONT)
    ready(two)
    arrives(west, "messages come after it went on")
    ok("replication goes on when the owner is paused, and when that goes on", f"{paused:.0f} s paused")

    # Short of its session: it remains the owner, and what it had read goes on.
    one.send(signal.SIGSTOP)
    time.sleep(SESSION / 3)
    one.send(signal.SIGCONT)
    arrives(west, "messages come after a short pause")
    west.send(signal.SIGKILL)
    west.process.wait()
    time.sleep(2)
    take_all(cluster, two)
    west.start()
    arrives(west, "messages come when the other cluster is back")
    ok("replication goes on when the other cluster was away while topics moved")

    quiet = quiet_goes_on(cluster, west, client)
    arrives(west, "messages come still")
    for publisher in publishers:
        publisher.finish()
        assert not publisher.refused, publisher.refused
    there = connect(west.url)
    counts = [compare(client, there, publisher) for publisher in [*publishers, quiet]]
    for topic in [*TOPICS, QUIET]:
        owner = next(broker for broker in cluster.brokers if broker.url == one.owner_of(topic))
        until("nothing is left to send", lambda: stats_of(owner, topic)["replication"]["west"]["replicationBacklog"] == 0)
    ok("the other cluster has every message once and in order", f"{sum(counts)} messages of {sum(len(p.receipts) for p in [*publishers, quiet])} receipts")
    there.close()
    order(one, "POST", f"/admin/v2/namespaces/{NAMESPACE}/replication", ["standalone"])
    for topic in TOPICS:
        owner = next(broker for broker in cluster.brokers if broker.url == one.owner_of(topic))
        path = "/admin/v2/" + topic.replace("://", "/") + "/internalStats"
        until("the cursor goes with the policy", lambda: "pulsar.repl.west" not in owner.ask(path)[1]["cursors"])
    ok("the cursors go with the policy")
    client.close()


main()
