"""What happens to the cluster, and what must hold. See run.sh."""

import json
import re
import signal
import sys
import time

import pulsar

import kept
from scene import TAKEOVER_MAX, Load, both_serve, connect, ok, serves
from servers import SESSION, Cluster, Hosts, until


def clients_are_led_to_the_owner(cluster):
    one, two = cluster.brokers
    topic = "persistent://public/default/led"
    assert until("it is owned", lambda: one.owner_of(topic)) == one.url
    until("the other one knows", lambda: two.owner_of(topic) == one.url)
    client = connect(two.url)
    producer = client.create_producer(topic)
    sent = [producer.send(str(n).encode()) for n in range(10)]
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    for _ in sent:
        consumer.acknowledge(consumer.receive(timeout_millis=20_000))
    path = "/admin/v2/persistent/public/default/led/stats"
    status, location = two.ask(path)
    assert status == 307 and location.startswith(f"http://{one.id}{path}"), (status, location)
    status, stats = one.ask(path)
    assert status == 200 and stats["msgInCounter"] == 10, (status, stats)
    client.close()
    ok("clients of the wrong broker are led to the owner")


def racks_are_written_down(cluster):
    one, two = cluster.brokers
    ids = sorted(f"{bookie.host}:{bookie.port}" for bookie in cluster.bookies)
    listed = lambda: sorted(bookie["bookieId"] for bookie in one.ask("/admin/v2/bookies/all")[1]["bookies"])
    until("all bookies take writes", lambda: listed() == ids)
    path = "/admin/v2/bookies/racks-info/" + ids[0].replace(":", "%3A")
    status, answer = one.ask(path + "?group=fast", "POST", b'{"rack": "/r/1"}')
    assert status == 204, (status, answer)
    # The other one reads it where the first one has put it.
    assert two.ask("/admin/v2/bookies/racks-info") == (200, {"fast": {ids[0]: {"rack": "/r/1"}}})
    assert two.ask(path, "DELETE")[0] == 204
    assert one.ask(path)[0] == 404
    ok("bookies are listed and their racks written down")


def namespaces_say_how_many_copies(cluster):
    one = cluster.brokers[0]
    path = "/admin/v2/namespaces/public/copies"
    assert one.ask(path, "PUT", b"{}")[0] == 204
    # All of it is read at the end.
    kept = b'{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'
    assert one.ask(f"{path}/retention", "POST", kept)[0] == 204
    topic = "persistent://public/copies/t"
    assert until("it is owned", lambda: one.owner_of(topic)) == one.url

    def copies(ensemble, write, ack):
        said = {"bookkeeperEnsemble": ensemble, "bookkeeperWriteQuorum": write, "bookkeeperAckQuorum": ack}
        return json.dumps({**said, "managedLedgerMaxMarkDeleteRate": 0.0}).encode()

    client = connect(one.url)
    producer = client.create_producer(topic)

    def newest():
        producer.send(b"x")
        # A topic that was just moved by a change of its policies answers a moment later.
        return one.ask("/admin/v2/persistent/public/copies/t/internalStats")[1]["ledgers"][-1]["ledgerId"]

    def is_kept_as(ledger, ensemble, write, ack):
        said = cluster.shell("ledgermetadata", "-ledgerid", str(ledger))
        for word in [f"ensembleSize={ensemble}", f"writeQuorumSize={write}", f"ackQuorumSize={ack}"]:
            assert word in said, (word, said[-2000:])

    first = newest()
    is_kept_as(first, 2, 2, 2)
    status, reason = one.ask(f"{path}/persistence", "POST", copies(4, 2, 2))
    assert status == 412 and "3 bookies take writes" in reason, (status, reason)
    status, reason = one.ask(f"{path}/persistence", "POST", copies(3, 2, 3))
    assert status == 400 and "AckQuorum" in reason, (status, reason)
    assert one.ask(f"{path}/persistence", "POST", copies(3, 3, 2))[0] == 204
    second = until("the next ledger is begun", lambda: (newest() if newest() != first else None))
    is_kept_as(second, 3, 3, 2)
    # Acknowledged from the memory of bookies, synced a little later.
    assert one.ask(f"{path}/property/pharos.durability/async", "PUT")[0] == 204
    third = until("the next ledger is begun", lambda: (newest() if newest() != second else None))
    is_kept_as(third, 3, 3, 2)
    # One bookie alone is in the group.
    bookie = f"{cluster.bookies[0].host}:{cluster.bookies[0].port}"
    bookie_part = bookie.replace(":", "%3A")
    affinity = json.dumps({"bookkeeperAffinityGroupPrimary": "chosen"}).encode()
    status, reason = one.ask(f"{path}/persistence/bookieAffinity", "POST", affinity)
    assert status == 412 and "no bookie is in the group chosen" in reason, (status, reason)
    rack = json.dumps({"rack": "/region/chosen"}).encode()
    assert one.ask(f"/admin/v2/bookies/racks-info/{bookie_part}?group=chosen", "POST", rack)[0] == 204
    assert one.ask(f"{path}/persistence", "POST", copies(1, 1, 1))[0] == 204
    assert one.ask(f"{path}/persistence/bookieAffinity", "POST", affinity)[0] == 204

    def newest_if_chosen():
        ledger = newest()
        said = cluster.shell("ledgermetadata", "-ledgerid", str(ledger))
        return ledger if re.findall(r"127\.0\.0\.1:\d+", said.split("ensembles")[1]) == [bookie] else None

    fourth = until("a ledger is begun on the chosen bookie", newest_if_chosen)
    assert one.ask(f"{path}/persistence/bookieAffinity", "DELETE")[0] == 204
    assert one.ask(f"/admin/v2/bookies/racks-info/{bookie_part}", "DELETE")[0] == 204
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    count = 0
    while reader.has_message_available():
        assert reader.read_next(timeout_millis=20_000).data() == b"x"
        count += 1
    assert count >= 3
    client.close()
    ok("namespaces say how many copies there are", f"ledgers {first}, {second}, {third}; {fourth} on one of a group")


def a_namespace_is_emptied(cluster):
    """Of its topics nothing is left but the nodes that held them; brokers that start later find those."""
    one = cluster.brokers[0]
    assert one.ask("/admin/v2/namespaces/public/emptied", "PUT", b"{}")[0] == 204
    path = "/admin/v2/persistent/public/emptied"
    assert one.ask(f"{path}/t", "PUT")[0] == 204
    assert one.ask(f"{path}/t/maxProducers", "POST", b"7")[0] == 204
    assert one.ask(f"{path}/parts/partitions", "PUT", b"2")[0] == 204
    for gone in ["t", "parts/partitions"]:
        deleted = lambda gone=gone: one.ask(f"{path}/{gone}?force=true", "DELETE")[0]
        assert until("it is deleted", lambda: deleted() in (204, 404))
    ok("the topics of a namespace are deleted")


def bundle_of(broker, topic):
    """The path of its bundle in the admin API."""
    status, bundle = broker.ask("/lookup/v2/topic/" + topic.replace("://", "/") + "/bundle")
    assert status == 200, (status, bundle)
    return "/admin/v2/namespaces/" + topic.split("://")[1].rsplit("/", 1)[0] + "/" + bundle.strip('"')


def bundles_are_handed_over(cluster, load):
    began = time.monotonic()
    for giver, taker in [cluster.brokers, cluster.brokers[::-1]]:
        paths = {bundle_of(giver, p.topic) for p in load.publishers if giver.owner_of(p.topic) == giver.url}
        for path in paths:
            status, reason = giver.ask(f"{path}/unload?destinationBroker={taker.id}", "PUT")
            assert status == 204, (status, reason)
        for publisher in load.publishers:
            until("it is taken", lambda: giver.owner_of(publisher.topic) == taker.url)
        load.flows()
    pause = load.longest_pause(began)
    assert pause < SESSION, pause
    # Back to where the second half was.
    one, two = cluster.brokers
    for path in {bundle_of(one, p.topic) for p in load.publishers if "/of-2/" in p.topic}:
        assert one.ask(f"{path}/unload?destinationBroker={two.id}", "PUT")[0] == 204
    load.flows()
    ok("bundles are handed over under load", f"longest pause {pause:.2f} s")


def bundles_are_cut(cluster, load):
    began = time.monotonic()
    one, two = cluster.brokers
    mine = [p.topic for p in load.publishers if one.owner_of(p.topic) == one.url]
    before = {topic: bundle_of(one, topic) for topic in mine}
    for path in set(before.values()):
        status, reason = one.ask(f"{path}/split", "PUT")
        assert status == 204, (status, reason)
    for topic in mine:
        assert bundle_of(one, topic) != before[topic]
        until("both know its bundle", lambda: bundle_of(two, topic) == bundle_of(one, topic))
        assert one.owner_of(topic) == one.url
        until("both know its owner", lambda: two.owner_of(topic) == one.url)
    load.flows()
    pause = load.longest_pause(began)
    assert pause < SESSION, pause
    leaders = [broker.ask("/admin/v2/brokers/leaderBroker")[1]["brokerId"] for broker in cluster.brokers]
    assert leaders[0] == leaders[1] and leaders[0] in (one.id, two.id), leaders
    ok("bundles are cut under load", f"longest pause {pause:.2f} s")


def a_bookie_dies(cluster, load):
    began = time.monotonic()
    cluster.bookies[0].kill()
    load.flows(400)
    pause = load.longest_pause(began)
    assert pause < SESSION, pause
    cluster.bookies[0].start()
    load.flows()
    ok("a bookie of three dies and writes go on", f"longest pause {pause:.2f} s")


def zookeeper_is_gone_for_a_while(cluster, load):
    began = time.monotonic()
    cluster.zookeeper.kill()
    # Beyond the session of every broker.
    time.sleep(SESSION + 6)
    pause = load.longest_pause(began)
    assert pause < SESSION, pause
    for broker in cluster.brokers:
        until("it says that it is without metadata", lambda: broker.ask("/admin/v2/brokers/ready")[0] == 503)
        assert "metadata" in str(broker.ask("/admin/v2/brokers/ready")[1])
    cluster.zookeeper.start()
    for broker in cluster.brokers:
        until("it is ready again", lambda: broker.ask("/admin/v2/brokers/ready")[0] == 200)
    load.flows()
    ok("ZooKeeper is gone for a while and serving goes on", f"longest pause {pause:.2f} s")


def a_paused_broker_is_fenced(cluster, load):
    one, two = cluster.brokers
    mine = [p for p in load.publishers if two.owner_of(p.topic) == one.url]
    assert mine, "the broker to pause owns nothing"
    one.send(signal.SIGSTOP)
    # The clients of the paused broker wait, and their sends with them; others find the next owner, which takes the logs.
    _, taken = serves(two, [p.topic for p in mine])
    assert taken < TAKEOVER_MAX, taken
    answered = [p.answered() for p in mine]
    one.send(signal.SIGCONT)
    load.flows()
    until("it owns nothing", lambda: all(one.owner_of(p.topic) == two.url for p in mine))
    until("it is ready", lambda: one.ask("/admin/v2/brokers/ready")[0] == 200)
    assert all(p.answered() > before for p, before in zip(mine, answered))
    ok("a broker that was paused is fenced", f"taken over after {taken:.2f} s")


def a_broker_is_killed(cluster, load):
    one, two = cluster.brokers
    lost = [p.topic for p in load.publishers if one.owner_of(p.topic) == two.url]
    assert lost, "the broker to kill owns nothing"
    two.kill()
    began, taken = serves(one, lost)
    assert taken < TAKEOVER_MAX, taken
    load.flows()
    two.start()
    until("the brokers know each other", lambda: len(one.ask("/admin/v2/brokers/standalone")[1]) == 2)
    # A client that has tried in vain for a while waits longer each time: that is its own.
    pause = load.longest_pause(began)
    ok("a broker is killed and the other one serves", f"after {taken:.2f} s; longest pause of a client {pause:.2f} s")


def a_broker_is_stopped(cluster, load):
    one, two = cluster.brokers
    began = time.monotonic()
    assert one.stop() == 0
    load.flows()
    pause = load.longest_pause(began)
    assert pause < SESSION, pause
    for publisher in load.publishers:
        assert two.owner_of(publisher.topic) == two.url
    one.start()
    ok("a broker that is stopped hands its topics over", f"longest pause {pause:.2f} s")


def main():
    pharos, jars, folder = sys.argv[1:]
    with Cluster(Hosts(pharos), jars, folder) as cluster:
        both_serve(cluster)
        ok("two brokers are registered")
        clients_are_led_to_the_owner(cluster)
        racks_are_written_down(cluster)
        namespaces_say_how_many_copies(cluster)
        a_namespace_is_emptied(cluster)
        kept.outlasts(cluster, connect, serves, ok, TAKEOVER_MAX)
        load = Load(cluster)
        load.flows(100)
        ok("both brokers serve under load")
        bundles_are_handed_over(cluster, load)
        bundles_are_cut(cluster, load)
        a_bookie_dies(cluster, load)
        zookeeper_is_gone_for_a_while(cluster, load)
        # What had to be opened anew may be anywhere: the test of a paused broker wants some of it there.
        a_broker_is_killed(cluster, load)
        a_broker_is_stopped(cluster, load)
        spread(cluster, load)
        a_paused_broker_is_fenced(cluster, load)
        receipts, refused, twice, again = load.end()
        assert refused == 0, f"{refused} sends were refused"
        ok("every receipt is in its topic, in order", f"{receipts} receipts, {twice} entries twice, {again} received again")
        for broker in cluster.brokers:
            assert broker.stop() == 0
        ok("the brokers stop")


def spread(cluster, load):
    """Gets topics to the first broker: the other one is stopped for that, and started again."""
    one, two = cluster.brokers
    assert two.stop() == 0
    load.flows()
    two.start()
    for publisher in load.publishers:
        until("the first broker has them", lambda: one.owner_of(publisher.topic) == one.url)


main()
