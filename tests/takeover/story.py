"""Pulsar's broker, Pharos, Pulsar's broker again, on the same data. See run.sh."""

import os
import sys
import time

import pulsar

from java import JavaBroker
from servers import Broker, Cluster, Hosts, free_ports, until

TOPICS = "persistent://public/default/"
EARLIEST = pulsar.InitialPosition.Earliest
WAIT = 20_000
# Nothing more comes within this, in milliseconds.
QUIET = 300


def ok(name, detail=""):
    print(f"ok {name}{': ' + detail if detail else ''}", flush=True)


def connect(broker):
    log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, os.path.join(sys.argv[3], "clients.log"))
    return pulsar.Client(broker.url, operation_timeout_seconds=60, logger=log)


class Topic:
    """What was published to a topic, and what each subscription was told to forget: everything else is to be delivered."""

    def __init__(self, name, **producer):
        self.name, self.producer = TOPICS + name, {"block_if_queue_full": True, **producer}
        self.sent, self.acked = [], {}

    def publish(self, client, count):
        """Publishes, and notes each message with its place."""
        producer = client.create_producer(self.name, **self.producer)
        results = []
        first = len(self.sent)
        payloads = [f"{n}-{'x' * (n % 50)}".encode() for n in range(first, first + count)]
        for payload in payloads:
            producer.send_async(payload, lambda result, place: results.append((result, place)), properties={"n": "p"})
        producer.flush()
        until("receipts", lambda: len(results) == count)
        assert all(result == pulsar.Result.Ok for result, _ in results), results[:3]
        self.sent += payloads
        producer.close()

    def subscribe(self, client, subscription, kind):
        self.acked.setdefault(subscription, set())
        return client.subscribe(
            self.name, subscription, kind, initial_position=EARLIEST, receiver_queue_size=1000,
            batch_index_ack_enabled=True, negative_ack_redelivery_delay_ms=600_000,
        )

    def consume(self, client, subscription, kind, count, acks):
        """Takes messages, and acknowledges those for which `acks` says so."""
        consumer = self.subscribe(client, subscription, kind)
        for number in range(count):
            message = consumer.receive(WAIT)
            if acks(number):
                consumer.acknowledge(message)
                self.acked[subscription].add(message.data())
        # Acknowledgements are sent before it is gone.
        consumer.close()

    def check(self, client, kind_of, parts=True):
        """Every message is there for a reader, in order; each subscription gets what it has not acknowledged, and nothing else.
        Without `parts`, a batch of which a part was acknowledged may come whole."""
        reader = client.create_reader(self.name, pulsar.MessageId.earliest)
        seen = [reader.read_next(WAIT).data() for _ in self.sent]
        assert seen == self.sent, (self.name, len(seen), len(self.sent))
        assert not reader.has_message_available(), self.name
        reader.close()
        for subscription, acked in self.acked.items():
            consumer = self.subscribe(client, subscription, kind_of(subscription))
            wanted = [payload for payload in self.sent if payload not in acked]
            if not parts and self.producer["batching_enabled"]:
                self.check_batches(consumer, wanted)
                continue
            got = [consumer.receive(WAIT).data() for _ in wanted]
            assert sorted(got) == sorted(wanted), (self.name, subscription, len(got), len(wanted))
            try:
                extra = consumer.receive(QUIET)
                raise AssertionError(f"{self.name} {subscription} gets {extra.data()} again")
            except pulsar.Timeout:
                pass
            consumer.close()


    def check_batches(self, consumer, wanted):
        got = set()
        try:
            while True:
                got.add(consumer.receive(QUIET).data())
        except pulsar.Timeout:
            pass
        consumer.close()
        assert got.issuperset(wanted), (self.name, len(got), len(wanted))


def kind_of(subscription):
    return {"e": pulsar.ConsumerType.Exclusive, "s": pulsar.ConsumerType.Shared}[subscription[0]]


class Story:
    def __init__(self, cluster, java, pharos):
        self.cluster, self.java, self.pharos = cluster, java, pharos
        plain = {"batching_enabled": False}
        batches = {"batching_enabled": True, "batching_max_messages": 10, "batching_max_publish_delay_ms": 50}
        self.topics = [
            Topic("plain", **plain),
            Topic("a b*c", **plain),
            Topic("batches", **batches),
            Topic("compressed", compression_type=pulsar.CompressionType.ZLib, **batches),
        ]

    def act(self, broker, count=1_200):
        """Publishes to all topics, and acknowledges on all subscriptions a part of what is there."""
        client = connect(broker)
        for topic in self.topics:
            topic.publish(client, count)
            left = lambda subscription: len(topic.sent) - len(topic.acked.get(subscription, ()))
            topic.consume(client, "e-all", kind_of("e"), left("e-all"), lambda _: True)
            topic.consume(client, "e half", kind_of("e"), left("e half") // 2, lambda _: True)
            topic.consume(client, "s-holes", kind_of("s"), left("s-holes") // 2, lambda number: number % 3 == 0)
            topic.subscribe(client, "e-none", kind_of("e")).close()
        # Positions are written about once a second; a clean stop does not need it, a kill does.
        client.close()

    def check(self, broker, name, parts=True):
        began = time.monotonic()
        client = connect(broker)
        for topic in self.topics:
            topic.check(client, kind_of, parts)
        messages = sum(len(topic.sent) for topic in self.topics)
        client.close()
        ok(name, f"{messages} messages, {sum(len(t.acked) for t in self.topics)} subscriptions, {time.monotonic() - began:.0f} s")

    def tell(self):
        """The story."""
        java, pharos = self.java, self.pharos
        java.format()
        java.start()
        # All is compared, so nothing may be trimmed.
        java.ask("/admin/v2/tenants/public", "PUT", b'{"allowedClusters":["pc"],"adminRoles":[]}')
        java.ask("/admin/v2/namespaces/public/default", "PUT", b"{}")
        kept = b'{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'
        status, answer = java.ask("/admin/v2/namespaces/public/default/retention", "POST", kept)
        assert status == 204, (status, answer)
        self.act(java)
        self.check(java, "the checker agrees with a broker of Pulsar")
        java.stop()
        pharos.start()
        until("it is ready", lambda: pharos.ask("/admin/v2/brokers/ready")[0] == 200)
        self.check(pharos, "Pharos serves what a broker of Pulsar left")
        self.act(pharos)
        self.check(pharos, "it goes on with it")
        pharos.stop()
        java.start()
        self.check(java, "a broker of Pulsar serves what Pharos left", parts=False)
        self.act(java)
        java.stop()
        pharos.start()
        until("it is ready", lambda: pharos.ask("/admin/v2/brokers/ready")[0] == 200)
        self.check(pharos, "Pharos serves it once more", parts=False)
        self.act(pharos)
        # What was acknowledged is written within about a second.
        time.sleep(4)
        pharos.kill()
        java.start()
        self.check(java, "a broker of Pulsar serves what a killed Pharos left", parts=False)


def main(pharos, jars, folder):
    hosts = Hosts(pharos)
    hosts.brokers = []
    with Cluster(hosts, jars, folder) as cluster:
        ports = free_ports(4)
        java = JavaBroker(cluster, jars, folder, ports[:2])
        settings = [
            "--engine", "bookkeeper", "--metadata", f"zk:{cluster.zk}", "--metadata-layout", "pulsar",
            "--bookkeeper-max-frame-size", "5130KiB", "--cluster-name", "pc", "--load-balancer-enabled=false",
            "--ledger-max-entries", "500", "--ledger-min-rollover-time", "0s",
        ]
        ours = Broker("", [pharos], folder, "127.0.0.1", ports[2:], settings)
        try:
            Story(cluster, java, ours).tell()
        except BaseException:
            for server in [java, ours]:
                if os.path.exists(server.log):
                    print(f"---- {server.name}\n{server.tail(80)}", flush=True)
            raise
        finally:
            for server in [java, ours]:
                if server.process is not None:
                    server.kill()


main(*sys.argv[1:])
