"""Pulsar's broker, Pharos, Pulsar's broker again, on the same data. See run.sh."""

import datetime
import os
import re
import subprocess
import sys
import time

import pulsar

from java import JavaBroker
from kept import Keyed, Numbered, path_of
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

    batches, count = False, 1_000
    # Further arguments of its consumers and readers.
    reading = {}

    def __init__(self, name, **producer):
        self.name, self.producer = TOPICS + name, {"block_if_queue_full": True, "batching_enabled": self.batches, **producer}
        self.sent, self.acked = [], {}
        # Acknowledged in the last second before a broker was killed: they may come again.
        self.hasty = {}
        # Sent, but not to be delivered before the story is over.
        self.late = set()

    def payloads(self):
        first = len(self.sent)
        return [f"{n}-{'x' * (n % 50)}".encode() for n in range(first, first + self.count)]

    def options(self, _payload):
        """Further arguments of sending a message."""
        return {}

    def publish(self, client):
        producer = client.create_producer(self.name, **self.producer)
        results = []
        payloads = self.payloads()
        for payload in payloads:
            producer.send_async(payload, lambda result, _: results.append(result), properties={"n": "p"}, **self.options(payload))
        producer.flush()
        until("receipts", lambda: len(results) == len(payloads))
        assert all(result == pulsar.Result.Ok for result in results), results[:3]
        self.sent += payloads
        producer.close()

    def act(self, client):
        """Publishes, and acknowledges a part of what is there."""
        self.publish(client)
        self.consume(client, "e-all", self.left("e-all"), lambda _: True)
        self.consume(client, "e half", self.left("e half") // 2, lambda _: True)
        self.consume(client, "s-holes", self.left("s-holes") // 2, lambda number: number % 3 == 0)
        self.subscribe(client, "e-none").close()

    def left(self, subscription):
        return len(self.sent) - len(self.late) - len(self.acked.get(subscription, ()))

    def subscribe(self, client, subscription):
        self.acked.setdefault(subscription, set())
        return client.subscribe(
            self.name, subscription, kind_of(subscription), initial_position=EARLIEST, receiver_queue_size=1000,
            batch_index_ack_enabled=True, negative_ack_redelivery_delay_ms=600_000, **self.reading,
        )

    def act_hastily(self, client):
        """Acknowledges something more; the broker is killed at once."""
        for subscription in ("e half", "s-holes"):
            if subscription in self.acked:
                hasty = self.hasty.setdefault(subscription, set())
                self.consume(client, subscription, min(20, self.left(subscription)), lambda _: True, hasty)

    def consume(self, client, subscription, count, acks, acked=None):
        """Takes messages, and acknowledges those for which `acks` says so."""
        consumer = self.subscribe(client, subscription)
        acked = self.acked[subscription] if acked is None else acked
        for number in range(count):
            message = consumer.receive(WAIT)
            if acks(number):
                consumer.acknowledge(message)
                acked.add(message.data())
        # Acknowledgements are sent before it is gone.
        consumer.close()

    def check(self, client):
        """Every message is there for a reader, in order; each subscription gets what it has not acknowledged, and nothing else but what it
        acknowledged hastily."""
        reader = client.create_reader(self.name, pulsar.MessageId.earliest, **self.reading)
        seen = [reader.read_next(WAIT).data() for _ in self.sent]
        assert seen == self.sent, (self.name, len(seen), len(self.sent))
        assert not reader.has_message_available(), self.name
        reader.close()
        for subscription, acked in self.acked.items():
            consumer = self.subscribe(client, subscription)
            left = [payload for payload in self.sent if payload not in acked and payload not in self.late]
            hasty = self.hasty.get(subscription, set())
            wanted = {payload for payload in left if payload not in hasty}
            got = []
            while True:
                try:
                    got.append(consumer.receive(QUIET if len(got) >= len(wanted) and wanted.issubset(got) else WAIT).data())
                except pulsar.Timeout:
                    break
            again = [payload for payload in got if payload not in wanted and payload not in hasty]
            assert not again, f"{self.name} {subscription} gets {again[0][:80]} again"
            assert len(set(got)) == len(got) and wanted.issubset(got), (self.name, subscription, len(got), len(wanted))
            consumer.close()


class Batches(Topic):
    """In batches, of which parts are acknowledged."""

    batches = True

    def __init__(self, name, **producer):
        super().__init__(name, batching_max_messages=10, batching_max_publish_delay_ms=50, **producer)


class Holes(Topic):
    """Every other message is acknowledged: as many holes as a broker of Pulsar keeps."""

    count = 20_001

    def act(self, client):
        if not self.sent:
            self.publish(client)
            self.consume(client, "s-holes", self.count, lambda number: number % 2 == 1)


class Chunks(Topic):
    """Messages of several entries each."""

    count = 2

    def payloads(self):
        first = len(self.sent)
        return [f"{n}-".encode() + b"x" * 11_000_000 for n in range(first, first + self.count)]

    def act(self, client):
        self.publish(client)
        self.consume(client, "e half", 1, lambda _: True)
        self.subscribe(client, "e-none").close()


class Delayed(Topic):
    """Half of the messages are due at once, the others in a day."""

    count = 20

    def options(self, payload):
        number = int(payload.split(b"-")[0])
        if number % 2 == 0:
            return {}
        self.late.add(payload)
        return {"deliver_after": datetime.timedelta(days=1)}

    def act(self, client):
        self.publish(client)
        self.consume(client, "s-holes", self.left("s-holes") // 2, lambda number: number % 3 == 0)


class Encrypted(Batches):
    """What only its clients can read."""

    def __init__(self, name, folder):
        private, public = os.path.join(folder, "private.pem"), os.path.join(folder, "public.pem")
        for words in [["genrsa", "-out", private, "2048"], ["rsa", "-in", private, "-pubout", "-out", public]]:
            subprocess.run(["openssl", *words], check=True, capture_output=True)
        reader = pulsar.CryptoKeyReader(public, private)
        self.reading = {"crypto_key_reader": reader}
        super().__init__(name, encryption_key="key", crypto_key_reader=reader)


def kind_of(subscription):
    return {"e": pulsar.ConsumerType.Exclusive, "s": pulsar.ConsumerType.Shared}[subscription[0]]


class Story:
    def __init__(self, cluster, java, pharos):
        self.cluster, self.java, self.pharos = cluster, java, pharos
        self.topics = [
            Topic("plain"), Topic("a b*c"), Batches("batches"), Batches("compressed", compression_type=pulsar.CompressionType.ZLib),
            Encrypted("encrypted", sys.argv[3]), Holes("holes"), Chunks("chunks", chunking_enabled=True), Delayed("delayed"),
        ]
        self.numbered = Numbered("persistent://public/numbered/t")
        batches = {"batching_enabled": True, "batching_max_messages": 10, "batching_max_publish_delay_ms": 50}
        self.keyed = [
            Keyed("persistent://public/keyed/single"),
            Keyed("persistent://public/keyed/batches", **batches, compression_type=pulsar.CompressionType.LZ4),
        ]

    def act(self, broker):
        """Publishes to all topics, and acknowledges on all subscriptions a part of what is there."""
        client = connect(broker)
        for topic in self.topics:
            topic.act(client)
        client.close()

    def act_hastily(self, broker):
        client = connect(broker)
        for topic in self.topics:
            topic.act_hastily(client)
        client.close()

    def check(self, broker, name):
        began = time.monotonic()
        client = connect(broker)
        for topic in self.topics:
            topic.check(client)
        messages = sum(len(topic.sent) for topic in self.topics)
        client.close()
        ok(name, f"{messages} messages, {sum(len(t.acked) for t in self.topics)} subscriptions, {time.monotonic() - began:.0f} s")

    def make_kept(self, java):
        """A namespace that deduplicates, and one of which nothing is kept but what is compacted."""
        for name in ("numbered", "keyed"):
            assert java.ask(f"/admin/v2/namespaces/public/{name}", "PUT", b"{}")[0] == 204
        kept = b'{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'
        assert java.ask("/admin/v2/namespaces/public/numbered/retention", "POST", kept)[0] == 204
        assert java.ask("/admin/v2/namespaces/public/numbered/deduplication", "POST", b"true")[0] == 204

    def keep(self, broker, name, is_first=False):
        """What the broker before left is deduplicated and compacted, and is so again after more of it."""
        began = time.monotonic()
        client = connect(broker)
        if not is_first:
            for keyed in self.keyed:
                keyed.check(client, False)
        self.numbered.produce_early(client)
        self.numbered.produce(client)
        self.numbered.check(client)
        for keyed in self.keyed:
            keyed.publish(client)
            keyed.check(client, False)
            keyed.compact(broker)
            keyed.check(client, True)
        self.keyed[0].is_trimmed(broker, client)
        for keyed in self.keyed:
            keyed.check(client, True)
            # Of the next one's, some is not compacted.
            keyed.publish(client)
        client.close()
        ok(name, f"{self.numbered.sent} numbers, {sum(keyed.number for keyed in self.keyed)} keyed messages, {time.monotonic() - began:.0f} s")

    def described(self, broker, keyed):
        """The compacted ledger of a topic, and what it says of itself."""
        ledger = broker.ask(path_of(keyed.topic) + "/internalStats")[1]["compactedLedger"]["ledgerId"]
        said = self.cluster.shell("ledgermetadata", "-ledgerid", str(ledger))
        custom = said.split("customMetadata={")[1].split("}")[0]
        return ledger, {word: re.search(word + r"=([^,]+)", custom).group(1) for word in ("application", "component", "pulsar/compactedTopic")}

    def lose_compacted(self, java):
        """A topic of which the compacted ledger is gone is not taken over, and named."""
        lost = Keyed("persistent://public/keyed/lost", 20)
        client = connect(java)
        lost.publish(client)
        client.close()
        lost.compact(java)
        ledger, _ = self.described(java, lost)
        java.stop()
        self.cluster.shell("deleteledger", "-ledgerid", str(ledger), "-force")
        self.look(1, lost.topic, f"ledger {ledger}, cannot be read", "Not everything can be taken over")
        java.start()
        assert java.ask(path_of(lost.topic) + "?force=true", "DELETE")[0] == 204
        java.stop()

    def die_in_the_middle(self, pharos):
        """Pharos is killed while it compacts and deduplicates. Answers with the last number of which it said that it is stored."""
        client = connect(pharos)
        for keyed in self.keyed:
            keyed.publish(client)
        answers, first = [], self.numbered.sent + 1
        producer = client.create_producer(
            self.numbered.topic, producer_name="numbered", batching_enabled=False, max_pending_messages=10_000
        )
        self.numbered.sent += 5_000
        for number in range(first, self.numbered.sent + 1):
            producer.send_async(str(number).encode(), lambda result, _: answers.append(result), sequence_id=number)
        for keyed in self.keyed:
            keyed.compact(pharos, waits=False)
        until("some are answered", lambda: len(answers) > 200)
        stored = len(answers)
        pharos.kill()
        # Who waits for the broker to come back would send when another one does.
        client.shutdown()
        assert all(result == pulsar.Result.Ok for result in answers[:stored])
        return first - 1 + stored

    def facts(self, broker, step):
        """Tenants, policies, schemas, policies of topics: see facts.py."""
        command = [sys.executable, os.path.join(os.path.dirname(__file__), "facts.py"), step, f"http://127.0.0.1:{broker.http}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (step, done.stdout[-2000:] + done.stderr[-2000:])
        ok(f"facts: {step}")

    def look(self, status, *said):
        """What `pharos cluster check` says beforehand."""
        command = [*self.pharos.program, "cluster", "check", "--metadata", f"zk:{self.cluster.zk}", "--cluster-name", "pc"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == status and all(words in done.stdout for words in said), (done.returncode, done.stdout, done.stderr)
        ok("cluster check", said[-1])

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
        self.facts(java, "make")
        self.act(java)
        self.check(java, "the checker agrees with a broker of Pulsar")
        self.make_kept(java)
        self.keep(java, "it agrees of what is deduplicated and compacted", is_first=True)
        _, described = self.described(java, self.keyed[0])
        self.look(1, "Brokers that still run", "once no broker runs any more")
        self.lose_compacted(java)
        self.look(0, "Everything would be taken over.")
        pharos.start()
        until("it is ready", lambda: pharos.ask("/admin/v2/brokers/ready")[0] == 200)
        self.facts(pharos, "found")
        self.check(pharos, "Pharos serves what a broker of Pulsar left")
        self.facts(pharos, "change")
        self.act(pharos)
        self.check(pharos, "it goes on with it")
        self.keep(pharos, "Pharos deduplicates and compacts what a broker of Pulsar did before")
        assert self.described(pharos, self.keyed[0])[1] == described
        pharos.stop()
        java.start()
        self.facts(java, "changed")
        self.check(java, "a broker of Pulsar serves what Pharos left")
        self.keep(java, "it deduplicates and compacts what Pharos did before")
        self.act(java)
        java.stop()
        pharos.start()
        until("it is ready", lambda: pharos.ask("/admin/v2/brokers/ready")[0] == 200)
        self.facts(pharos, "last")
        self.check(pharos, "Pharos serves it once more")
        self.act(pharos)
        # What was acknowledged is written within about a second, a state of many holes within five.
        time.sleep(6)
        self.act_hastily(pharos)
        answered = self.die_in_the_middle(pharos)
        java.start()
        self.check(java, "a broker of Pulsar serves what a killed Pharos left")
        client = connect(java)
        self.numbered.goes_on(client, answered)
        client.close()
        self.keep(java, "it deduplicates and compacts what was under way there")
        java.stop()
        pharos.start()
        until("it is ready", lambda: pharos.ask("/admin/v2/brokers/ready")[0] == 200)
        self.keep(pharos, "and Pharos once more")
        answered = self.die_in_the_middle(pharos)
        pharos.start()
        until("it is ready", lambda: pharos.ask("/admin/v2/brokers/ready")[0] == 200)
        client = connect(pharos)
        self.numbered.goes_on(client, answered)
        client.close()
        self.keep(pharos, "and what was under way when that was killed")


def main(pharos, jars, folder):
    hosts = Hosts(pharos)
    hosts.brokers = []
    with Cluster(hosts, jars, folder) as cluster:
        ports = free_ports(4)
        java = JavaBroker(cluster, jars, folder, ports[:2])
        settings = [
            "--engine", "bookkeeper", "--metadata", f"zk:{cluster.zk}", "--metadata-layout", "pulsar",
            "--bookkeeper-max-frame-size", "5130KiB", "--cluster-name", "pc", "--load-balancer-enabled=false",
            "--ledger-max-entries", "500", "--ledger-min-rollover-time", "0s", "--policies-deduplication-snapshot-entries", "20",
            "--policies-delete-inactive-topics=false",
        ]
        ours = Broker("", [pharos], folder, "127.0.0.1", ports[2:], settings)
        ours.program = [pharos]
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
