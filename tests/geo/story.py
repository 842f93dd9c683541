"""Pharos and Pulsar replicate to each other. See run.sh."""

import os
import sys
import threading
import time

import pulsar

from peers import Pharos, Pulsar
from servers import free_ports, until

TOPICS = "persistent://public/default/"
# Nothing more comes within this, in milliseconds.
QUIET = 3_000


def ok(name, detail=""):
    print(f"ok {name}{': ' + detail if detail else ''}", flush=True)


def connect(peer):
    log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, os.path.join(sys.argv[4], "clients.log"))
    return pulsar.Client(peer.url, operation_timeout_seconds=60, logger=log)


def key_of(payload):
    return payload[-2:].decode()


def publish(peer, topic, payloads, **options):
    client = connect(peer)
    # Each cluster has a producer of the same name: their numbers have nothing to do with each other.
    producer = client.create_producer(TOPICS + topic, producer_name="same", block_if_queue_full=True, **options)
    results = []
    for payload in payloads:
        producer.send_async(payload, lambda result, _: results.append(result), partition_key=key_of(payload), properties={"n": "p"})
    producer.flush()
    until("receipts", lambda: len(results) == len(payloads))
    assert all(result == pulsar.Result.Ok for result in results), results[:3]
    client.close()


def all_of(peer, topic):
    """The messages of a topic, until no more come."""
    client = connect(peer)
    reader = client.create_reader(TOPICS + topic, pulsar.MessageId.earliest)
    found, wait = [], 30_000
    try:
        while True:
            found.append(reader.read_next(wait))
            wait = QUIET
    except pulsar.Timeout:
        client.close()
        return found


def log_of(peer, topic, count):
    """The messages of a topic: so many, and no more."""
    found = all_of(peer, topic)
    assert len(found) == count, f"{peer.cluster} has {len(found)} of {count} messages of {topic}"
    return found


def texts(messages, start):
    return [message.data() for message in messages if message.data().startswith(start)]


def both_ways(pharos, other):
    sent = {peer: [f"{peer.cluster}-{n}".encode() for n in range(2_000)] for peer in (pharos, other)}
    for peer, options in ((pharos, {"batching_enabled": True}), (other, {"batching_enabled": True, "compression_type": pulsar.CompressionType.LZ4})):
        publish(peer, "both", sent[peer], **options)
    pharos.has_sent_all("both", other)
    other.has_sent_all("both", pharos)
    for peer in (pharos, other):
        found = log_of(peer, "both", 4_000)
        for of in (pharos, other):
            assert texts(found, of.cluster.encode() + b"-") == sent[of], f"{peer.cluster} of {of.cluster}"
            of_it = [message for message in found if message.data().startswith(of.cluster.encode() + b"-")]
            assert all(message.partition_key() == key_of(message.data()) and message.properties()["n"] == "p" for message in of_it)
    ok("both ways", "2000 messages each, in order, none comes back")
    stats = pharos.admin("topics", "stats", TOPICS + "both")
    assert '"replicationBacklog" : 0' in stats and '"connected" : true' in stats, stats
    assert "pulsar.repl.pulsar" in pharos.admin("topics", "stats-internal", TOPICS + "both")
    ok("stats of pulsar-admin")


def partitions(pharos, other):
    for peer in (pharos, other):
        # Pulsar makes it at the other cluster as well.
        if (peer.ask("/admin/v2/persistent/public/default/parts/partitions") or {}).get("partitions") != 3:
            peer.admin("topics", "create-partitioned-topic", TOPICS + "parts", "--partitions", "3")
    for peer in (pharos, other):
        publish(peer, "parts", [f"{peer.cluster}-{n}".encode() for n in range(300)])
    for index in range(3):
        name = f"parts-partition-{index}"
        pharos.has_sent_all(name, other)
        other.has_sent_all(name, pharos)
        counts = [peer.ask(f"/admin/v2/persistent/public/default/{name}/stats")["msgInCounter"] for peer in (pharos, other)]
        assert counts[0] == counts[1] > 0, (name, counts)
    ok("partitions go to partitions")


def subscriptions(pharos, other):
    """A subscription at one cluster is followed at the other, which has it from then on, and goes on with it."""
    for home, away in ((pharos, other), (other, pharos)):
        topic, name = f"followed-{home.cluster}", "followed"
        # There is no word for it in the Python client, so pulsar-admin makes it.
        publish(home, topic, [b"0-00"])
        home.has_sent_all(topic, away)
        publish(away, topic, [b"1-00"])
        away.has_sent_all(topic, home)
        home.admin("topics", "create-subscription", TOPICS + topic, "-s", name, "-m", "earliest", "-r")
        assert "true" in home.admin("topics", "get-replicated-subscription-status", TOPICS + topic, "-s", name)
        client = connect(home)
        consumer = client.subscribe(TOPICS + topic, name, consumer_type=pulsar.ConsumerType.Shared)
        for peer in (home, away):
            publish(peer, topic, [f"{peer.cluster}-{n:02}".encode() for n in range(100)])
        for _ in range(202):
            consumer.acknowledge(consumer.receive(30_000))

        def follows():
            found = (away.ask(f"/admin/v2/persistent/public/default/{topic}/stats") or {}).get("subscriptions", {}).get(name)
            # Markers may be left.
            return found and found["isReplicated"] and found["msgBacklog"] < 20

        until(f"{away.cluster} follows", follows, 60)
        client.close()
        away.has_sent_all(topic, home)
        client = connect(away)
        consumer = client.subscribe(TOPICS + topic, name, consumer_type=pulsar.ConsumerType.Shared)
        publish(home, topic, [f"more-{n:02}".encode() for n in range(10)])
        found = []
        try:
            while True:
                message = consumer.receive(QUIET if len(found) >= 10 else 30_000)
                consumer.acknowledge(message)
                found.append(message.data())
        except pulsar.Timeout:
            client.close()
        # A cursor follows up to the last place that both have compared.
        assert set(found) >= {f"more-{n:02}".encode() for n in range(10)} and len(found) < 150, (away.cluster, len(found), found[:3])
        ok(f"a subscription of {home.cluster} is followed", f"{len(found)} of 212 messages come after the change of clusters")


class Schema(pulsar.schema.Record):
    x = pulsar.schema.Integer()


def schemas(pharos, other):
    for source, target, topic in ((pharos, other, "schema-a"), (other, pharos, "schema-b")):
        client = connect(source)
        producer = client.create_producer(TOPICS + topic, schema=pulsar.schema.JsonSchema(Schema))
        for x in range(10):
            producer.send(Schema(x=x))
        client.close()
        source.has_sent_all(topic, target)
        client = connect(target)
        reader = client.create_reader(TOPICS + topic, pulsar.MessageId.earliest, schema=pulsar.schema.JsonSchema(Schema))
        assert [reader.read_next(30_000).value().x for _ in range(10)] == list(range(10))
        client.close()
    ok("schemas")


class Named:
    """A producer of a name that the other cluster has one of too. It lives through what happens to its broker."""

    def __init__(self, peer, topic):
        self.peer, self.client = peer, connect(peer)
        self.producer = self.client.create_producer(TOPICS + topic, producer_name="same", send_timeout_millis=0, batching_enabled=False)
        # The place of each message, as its receipt says it.
        self.places = []

    def publish(self, count):
        end = len(self.places) + count
        for number in range(len(self.places), end):
            self.producer.send_async(self.text(number), lambda result, at: self.places.append((result, at.ledger_id(), at.entry_id())))
        until("receipts", lambda: len(self.places) == end)
        assert all(place[0] == pulsar.Result.Ok for place in self.places), self.places[-3:]

    def text(self, number):
        return f"{self.peer.cluster}-{number}".encode()

    def stored(self):
        """What it sent, without what a broker answered as a duplicate."""
        return [self.text(number) for number, place in enumerate(self.places) if place[1:] != (-1, -1)]


def names(pharos, other):
    """A producer goes on after its broker was killed, while the other cluster's producer of that name has higher numbers in the log."""
    swallowed = {}
    for home, away in ((pharos, other), (other, pharos)):
        topic = f"names-{home.cluster}"
        own, theirs = Named(home, topic), Named(away, topic)
        own.publish(100)
        theirs.publish(300)
        away.has_sent_all(topic, home)
        home.kill()
        home.start()
        own.publish(100)
        for source, target in ((home, away), (away, home)):
            source.has_sent_all(topic, target)
        swallowed[home] = len(own.places) - len(own.stored())
        for peer in (pharos, other):
            found = list(dict.fromkeys(message.data() for message in all_of(peer, topic)))
            for sender in (own, theirs):
                of_it = [text for text in found if text.startswith(sender.peer.cluster.encode() + b"-")]
                assert of_it == sender.stored(), f"{topic}, {peer.cluster} of {sender.peer.cluster}: {len(of_it)} of {len(sender.stored())}"
        assert len(theirs.stored()) == 300
        own.client.close()
        theirs.client.close()
    assert swallowed[pharos] == 0, swallowed
    # Its log tells the places of what was replicated, and Pulsar goes by names and numbers when it reads it again.
    ok("producers of one name", f"nothing is lost on its way; after a crash Pulsar takes {swallowed[other]} of 100 of its own producer for duplicates, Pharos none")


class Sender(threading.Thread):
    """Publishes under one name until it is told to end, through whatever happens to its broker."""

    def __init__(self, peer, topic):
        super().__init__(daemon=True)
        self.peer, self.topic, self.ends = peer, topic, threading.Event()
        self.sent, self.answered, self.fault = 0, 0, None

    def run(self):
        client = connect(self.peer)
        # A name of its own: see names().
        producer = client.create_producer(
            TOPICS + self.topic, producer_name=f"of-{self.peer.cluster}", block_if_queue_full=True, send_timeout_millis=0, max_pending_messages=200,
            batching_enabled=False,
        )
        while not self.ends.is_set():
            producer.send_async(f"{self.peer.cluster}-{self.sent}".encode(), self.on_receipt)
            self.sent += 1
            time.sleep(0.001)
        producer.flush()
        client.close()

    def on_receipt(self, result, _):
        self.answered += 1
        if result != pulsar.Result.Ok:
            self.fault = result


def kills(pharos, other):
    """Each is killed while both are written to: at the end each has everything of both, in order and once."""
    senders = [Sender(peer, "kills") for peer in (pharos, other)]
    for sender in senders:
        sender.start()
    for killed in (pharos, other, pharos):
        before = [sender.answered for sender in senders]
        until("receipts", lambda: all(sender.answered > count + 500 for sender, count in zip(senders, before)), 120)
        killed.kill()
        killed.start()
    before = [sender.answered for sender in senders]
    until("receipts", lambda: all(sender.answered > count + 500 for sender, count in zip(senders, before)), 120)
    for sender in senders:
        sender.ends.set()
        sender.join(120)
        assert sender.answered == sender.sent and not sender.fault, (sender.answered, sender.sent, sender.fault)
    pharos.has_sent_all("kills", other)
    other.has_sent_all("kills", pharos)
    for peer in (pharos, other):
        found = [message.data() for message in all_of(peer, "kills")]
        # Pulsar forgets in a crash which places of the other cluster it had since its last snapshot: it may store some again.
        if peer is other:
            found = list(dict.fromkeys(found))
        for sender in senders:
            start = sender.peer.cluster.encode() + b"-"
            of_it = [text for text in found if text.startswith(start)]
            assert of_it == [start + str(n).encode() for n in range(sender.sent)], f"{peer.cluster} of {sender.peer.cluster}: {len(of_it)} of {sender.sent}"
    ok("kills", f"{[sender.sent for sender in senders]} messages, in order at both, and each once at Pharos")


def main():
    path, jars, admin, folder = sys.argv[1:]
    ports = free_ports(5)
    pharos, other = Pharos(path, folder, ports[:2], admin), Pulsar(jars, folder, ports[2:], admin)
    started = []
    try:
        for peer in (pharos, other):
            peer.start()
            started.append(peer)
        pharos.replicates_to(other)
        other.replicates_to(pharos)
        ok("set up with pulsar-admin")
        both_ways(pharos, other)
        partitions(pharos, other)
        schemas(pharos, other)
        subscriptions(pharos, other)
        names(pharos, other)
        kills(pharos, other)
    except BaseException:
        for peer in started:
            print(f"--- {peer.cluster}:\n{peer.tail()}", file=sys.stderr)
        raise
    finally:
        for peer in started:
            if peer.process:
                peer.kill()


main()
