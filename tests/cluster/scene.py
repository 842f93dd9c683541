"""What the stories have in common: brokers that serve, and load that is compared at the end."""

import os
import sys
import time

import pulsar

from load import Publisher, Subscriber, check
from servers import SESSION, until

# Topics are served elsewhere once a session ended; the rest is patience with a busy machine. What was long is printed, and what was
# handed over is told from what was taken over by a pause shorter than a session.
TAKEOVER_MAX = SESSION + 30

KINDS = [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover, pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared]


def ok(name, detail=""):
    print(f"ok {name}{': ' + detail if detail else ''}", flush=True)


class Load:
    """A publisher and a subscriber on each of some topics, half of them at home on each broker."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.client = connect(cluster.url)
        self.topics = []
        for number, broker in enumerate(cluster.brokers, 1):
            status, answer = broker.ask(f"/admin/v2/namespaces/public/of-{number}", "PUT", b"{}")
            assert status == 204, (status, answer)
            # All of it is compared at the end, so nothing may be trimmed.
            kept = b'{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'
            status, answer = broker.ask(f"/admin/v2/namespaces/public/of-{number}/retention", "POST", kept)
            assert status == 204, (status, answer)
            # Every broker knows it in a moment: lookups of both are to be answered.
            for other in cluster.brokers:
                until("the namespace is known", lambda: other.ask(f"/admin/v2/namespaces/public/of-{number}")[0] == 200)
            for kind in KINDS:
                topic = f"persistent://public/of-{number}/{str(kind).rsplit('.', 1)[-1].lower()}"
                owner = until("it is owned", lambda: broker.owner_of(topic))
                assert owner == broker.url, (topic, owner)
                self.topics.append((topic, kind))
        self.subscribers = [Subscriber(self.client, topic, kind) for topic, kind in self.topics]
        self.publishers = [Publisher(self.client, topic) for topic, _ in self.topics]

    def flows(self, count=20, seconds=60):
        """Waits until every publisher gets receipts again."""
        before = [p.answered() for p in self.publishers]
        until("receipts come", lambda: all(p.answered() >= b + count for p, b in zip(self.publishers, before)), seconds)

    def longest_pause(self, since):
        now = time.monotonic()
        return max(p.longest_pause(since, now) for p in self.publishers)

    def end(self):
        for publisher in self.publishers:
            publisher.finish()
        sums = [check(self.client, p, s) for p, s in zip(self.publishers, self.subscribers)]
        self.client.close()
        return [sum(column) for column in zip(*sums)]


def connect(url):
    log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, os.path.join(sys.argv[3], "clients.log"))
    # It doubles its pause between lookups until this time has passed, and may try a broker that is gone each time: with a minute it came at
    # 25 seconds and then not before 51.
    return pulsar.Client(url, operation_timeout_seconds=30, logger=log)


def both_serve(cluster):
    for broker in cluster.brokers:
        broker.start()
    ids = sorted(broker.id for broker in cluster.brokers)
    for broker in cluster.brokers:
        until("the brokers know each other", lambda: sorted(broker.ask("/admin/v2/brokers/standalone")[1]) == ids)
        until("it is ready", lambda: broker.ask("/admin/v2/brokers/ready")[0] == 200)


def serves(broker, topics):
    """Waits until a broker serves topics: a client that comes new publishes there. Returns when it began to wait and how long it took."""
    began = time.monotonic()
    for topic in topics:
        until("the other broker takes it", lambda: broker.owner_of(topic) == broker.url, TAKEOVER_MAX)
    client = connect(broker.url)
    for topic in topics:
        # In a way that leaves the topic as it is: its publisher may hold it.
        client.create_reader(topic, pulsar.MessageId.latest).close()
    client.close()
    return began, time.monotonic() - began


def make_carried(cluster, namespace, carriers):
    """A namespace in which so many brokers carry a broadcast subscription."""
    one = cluster.brokers[0]
    path = f"/admin/v2/namespaces/{namespace}"
    status, answer = one.ask(path, "PUT", b"{}")
    assert status == 204, (status, answer)
    status, answer = one.ask(f"{path}/property/pharos.broadcastCarriers/{carriers}", "PUT")
    assert status == 204, (status, answer)
    for broker in cluster.brokers:
        said = lambda broker=broker: broker.ask(f"{path}/property/pharos.broadcastCarriers")
        until("the policy is known", lambda: said()[0] == 200 and str(carriers) in str(said()[1]))
