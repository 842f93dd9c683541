"""Broadcast consumers of one topic that are dealt among brokers, on real servers. See run.sh.

Every consumer gets every receipt, in order, whichever broker is killed; and what a consumer at another broker has not acknowledged is not
trimmed.
"""

import signal
import sys
import threading
import time

import pulsar

from load import Publisher, number_of, rises
from scene import TAKEOVER_MAX, both_serve, connect, make_carried, ok
from servers import Cluster, Hosts, until

TOPIC = "persistent://public/dealt/news"
PATH = "/admin/v2/persistent/public/dealt/news"
EVERYONE = f"{PATH}/subscription/everyone"
COUNT = 12


class Listener:
    """One broadcast consumer of an official client: remembers what it saw, and acknowledges unless it is told not to."""

    def __init__(self, client, name):
        self.name, self.acknowledges = name, True
        self.seen, self.order, self.again, self.acked = set(), [], 0, set()
        self.consumer = client.subscribe(
            TOPIC, "everyone", consumer_name=name, properties={"pharos.subscription": "broadcast"},
            initial_position=pulsar.InitialPosition.Earliest,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            try:
                message = self.consumer.receive(timeout_millis=200)
            except pulsar.Timeout:
                continue
            number = number_of(message)
            if number in self.seen:
                self.again += 1
            else:
                self.seen.add(number)
                self.order.append(number)
            if self.acknowledges:
                self.consumer.acknowledge(message)
                self.acked.add(number)

    def stop(self):
        self._stop.set()
        self._thread.join()


def make(cluster):
    one, two = cluster.brokers
    make_carried(cluster, "public/dealt", 2)
    assert until("it is owned", lambda: one.owner_of(TOPIC)) == one.url
    until("the other one knows", lambda: two.owner_of(TOPIC) == one.url)


def details(broker):
    status, found = broker.ask(f"{EVERYONE}/broadcast")
    return found if status == 200 else {}


def connected(broker):
    """How many consumers the owner knows at itself and at the other broker."""
    found = details(broker)
    carriers = found.get("carriers", [])
    elsewhere = sum(carrier["connected"] for carrier in carriers if carrier.get("broker") not in (None, "this one"))
    return found.get("consumersConnected", 0), elsewhere


def all_received(listeners, publisher, count, what):
    goal = max(publisher.receipts, default=0) + count
    until(what, lambda: all(goal in listener.seen for listener in listeners), TAKEOVER_MAX)


def entries_kept(broker):
    """Unloads the topic, which closes its ledger, trims it, and counts what is left."""
    status, reason = broker.ask(f"{PATH}/unload", "PUT")
    assert status == 204, (status, reason)
    until("it is trimmed", lambda: broker.ask(f"{PATH}/trim", "POST")[0] == 204)
    status, stats = broker.ask(f"{PATH}/internalStats")
    assert status == 200, (status, stats)
    return sum(ledger["entries"] for ledger in stats["ledgers"])


def main():
    pharos, jars, folder = sys.argv[1:]
    with Cluster(Hosts(pharos), jars, folder) as cluster:
        both_serve(cluster)
        make(cluster)
        one, two = cluster.brokers
        client = connect(cluster.url)
        publisher = Publisher(client, TOPIC)
        listeners = [Listener(client, f"car-{number}") for number in range(COUNT)]
        until("consumers are at both brokers", lambda: connected(one)[0] == COUNT and 0 < connected(one)[1] < COUNT)
        ok("official clients go to the broker that they are assigned", f"{connected(one)[1]} of {COUNT} are at the other one")
        all_received(listeners, publisher, 200, "every consumer has every message")
        ok("every consumer has every message")

        two.send(signal.SIGKILL)
        two.process.wait()
        all_received(listeners, publisher, 200, "messages come after the carrier died")
        ok("consumers go on when the broker of their carrier is killed")

        two.start()
        until("it is there again", lambda: two.ask("/admin/v2/brokers/ready")[0] == 200)
        # A stop hands what a broker has to the other one: so the carrier comes to the broker that is new.
        one.stop()
        until("the other broker takes the topic", lambda: two.owner_of(TOPIC) == two.url, TAKEOVER_MAX)
        all_received(listeners, publisher, 200, "messages come after the owner was stopped")
        one.start()
        until("it is there again", lambda: one.ask("/admin/v2/brokers/ready")[0] == 200)
        ok("consumers go on when the owner is stopped")

        two.send(signal.SIGKILL)
        two.process.wait()
        until("the first broker takes the topic", lambda: one.owner_of(TOPIC) == one.url, TAKEOVER_MAX)
        all_received(listeners, publisher, 200, "messages come after the owner was killed")
        ok("consumers go on when the owner is killed")

        publisher.finish()
        assert not publisher.refused, publisher.refused
        for listener in listeners:
            until("all came", lambda: listener.seen >= publisher.receipts.keys())
            listener.stop()
            assert rises(listener.order), f"{listener.name} received out of order"
        again = max(listener.again for listener in listeners)
        ok("every receipt came to every consumer, in order", f"{len(publisher.receipts)} receipts; at most {again} came again to one")

        client.close()
        held_by_one_at_the_other_broker(cluster)


def held_by_one_at_the_other_broker(cluster):
    one, two = cluster.brokers
    two.start()
    until("it is there again", lambda: two.ask("/admin/v2/brokers/ready")[0] == 200)
    ids = sorted(broker.id for broker in cluster.brokers)
    until("they know each other", lambda: sorted(one.ask("/admin/v2/brokers/standalone")[1]) == ids)
    topic = "persistent://public/dealt/slow"
    path = "/admin/v2/persistent/public/dealt/slow"
    global TOPIC, PATH, EVERYONE
    TOPIC, PATH, EVERYONE = topic, path, f"{path}/subscription/everyone"
    assert until("it is owned", lambda: one.owner_of(topic)) == one.url
    until("the other one knows", lambda: two.owner_of(topic) == one.url)
    client = connect(cluster.url)
    listeners = [Listener(client, f"car-{number}") for number in range(COUNT)]
    until("consumers are at both brokers", lambda: connected(one)[0] == COUNT and 0 < connected(one)[1] < COUNT)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(100):
        producer.send(f"{number} x".encode())
    until("all came", lambda: all(len(listener.acked) == 100 for listener in listeners))
    # Who is at the other broker, its own list says.
    carrier = "/admin/v2/persistent/public/dealt/__carrier__slow__1/subscription/everyone/broadcast?consumers=true"
    there = two.ask(carrier)[1]["consumers"]
    assert 0 < len(there) < COUNT, there
    slow = next(listener for listener in listeners if listener.name == there[0]["consumerName"])
    slow.acknowledges = False
    for number in range(100, 200):
        producer.send(f"{number} x".encode())
    until("all came", lambda: all(len(listener.seen) == 200 for listener in listeners))
    time.sleep(3)
    for _ in range(3):
        kept = entries_kept(one)
        assert kept >= 100, f"{kept} entries are left, and {slow.name} has not acknowledged 100"
        time.sleep(1)
    producer.close()
    for listener in listeners:
        listener.stop()
    client.close()
    # It comes back, and begins at its place: the last second was over when it was left.
    client = connect(cluster.url)
    back = Listener(client, slow.name)
    until("the rest comes", lambda: back.order == list(range(100, 200)) and len(back.acked) == 100)
    until("nothing is held any more", lambda: entries_kept(one) == 0)
    back.stop()
    client.close()
    ok("what a consumer at the other broker has not acknowledged is kept, and no longer")


main()
