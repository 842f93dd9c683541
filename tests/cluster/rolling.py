"""A rolling restart: every broker is stopped and started in turn under load, and clients see reconnects only. See rolling.sh."""

import os
import sys
import time

import pulsar

from load import Publisher, Subscriber, check
from scene import KINDS, both_serve, connect, ok
from servers import SESSION, Cluster, Hosts, until

BROKERS = 3
# Twice, so that every broker gives topics away that came to it from another one.
ROUNDS = 2


class WatchedSubscriber(Subscriber):
    """A subscriber that notes whatever its client throws, but for having nothing to receive; and waits for acknowledgements."""

    def __init__(self, client, topic, kind):
        self.errors = []
        super().__init__(client, topic, kind)

    def _run(self):
        while not self._stop.is_set():
            try:
                super()._run()
            except Exception as error:  # pylint: disable=broad-except
                self.errors.append(f"{type(error).__name__}: {error}")


class Reads:
    """A reader that reads a topic from the start, again and again, and notes what its client throws or what is out of order."""

    def __init__(self, client, topic):
        self.client, self.topic, self.count, self.errors = client, topic, 0, []
        self.reader = client.create_reader(topic, pulsar.MessageId.earliest)
        self.last = -1

    def go_on(self):
        while self.reader.has_message_available():
            message = self.reader.read_next(timeout_millis=30_000)
            number = int(message.data().decode().split(" ", 1)[0])
            # What a producer sent again after it had lost its receipt is there twice.
            if number > self.last + 1:
                self.errors.append(f"{number} after {self.last}")
            self.last = max(self.last, number)
            self.count += 1


def topic_of(kind, number):
    return f"persistent://public/rolling/{str(kind).rsplit('.', 1)[-1].lower()}-{number}"


def load(cluster, client):
    """Publishers and subscribers of every kind, on topics that are spread over the brokers."""
    first = cluster.brokers[0]
    assert first.ask("/admin/v2/namespaces/public/rolling", "PUT", b'{"bundles": {"numBundles": 12}}')[0] == 204
    kept = b'{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'
    assert first.ask("/admin/v2/namespaces/public/rolling/retention", "POST", kept)[0] == 204
    for broker in cluster.brokers:
        until("the namespace is known", lambda: broker.ask("/admin/v2/namespaces/public/rolling")[0] == 200)
    pairs = []
    for kind in KINDS:
        for number in range(3):
            topic = topic_of(kind, number)
            subscriber = WatchedSubscriber(client, topic, kind)
            pairs.append((Publisher(client, topic, rate=100), subscriber))
    return pairs


def flows(pairs, count=20):
    before = [(p.answered(), len(s.seen)) for p, s in pairs]
    until("receipts come, and messages", lambda: all(
        p.answered() >= sent + count and len(s.seen) >= seen + count for (p, s), (sent, seen) in zip(pairs, before)
    ))


def longest_pause(pairs, since):
    now = time.monotonic()
    return max(p.longest_pause(since, now) for p, _ in pairs)


def restart(cluster, broker, pairs):
    """Stops a broker and starts it again; says the longest time for which a producer had no receipt."""
    others = [other for other in cluster.brokers if other is not broker]
    began = time.monotonic()
    assert broker.stop() == 0, broker.tail()
    flows(pairs)
    until("the others know", lambda: all(len(o.ask("/admin/v2/brokers")[1]) == BROKERS - 1 for o in others))
    broker.start()
    # What an operator waits for before the next one.
    until("it is ready", lambda: broker.ask("/admin/v2/brokers/ready")[0] == 200)
    until("all know each other", lambda: all(len(b.ask("/admin/v2/brokers")[1]) == BROKERS for b in cluster.brokers))
    flows(pairs)
    return longest_pause(pairs, began)


def errors_of(pairs):
    found = [f"{p.topic}: send {number}: {why}" for p, _ in pairs for number, why in p.refused.items()]
    return found + [f"{s.topic}: {why}" for _, s in pairs for why in s.errors]


def main():
    pharos, jars, folder, later = sys.argv[1:]
    hosts = Hosts(pharos)
    hosts.brokers = [("127.0.0.1", [pharos])] * BROKERS
    # As it is by default: bundles are dealt by load.
    hosts.balance = "true"
    with Cluster(hosts, jars, folder) as cluster:
        both_serve(cluster)
        client = connect(cluster.url)
        pairs = load(cluster, client)
        flows(pairs, 50)
        owners = {cluster.brokers[0].owner_of(p.topic) for p, _ in pairs}
        assert len(owners) > 1, owners
        ok("topics are at several brokers under load", f"{len(pairs)} topics at {len(owners)} brokers")
        reads = Reads(client, pairs[0][0].topic)
        longest = 0
        for turn in range(ROUNDS):
            for broker in cluster.brokers:
                if turn == 0:
                    broker.command[broker.command.index(pharos)] = later
                longest = max(longest, restart(cluster, broker, pairs))
                reads.go_on()
        assert longest < SESSION, longest
        ok("every broker is restarted in turn", f"{ROUNDS} times, longest pause of a producer {longest:.2f} s")
        for publisher, _ in pairs:
            publisher.finish()
        reads.go_on()
        sums = [check(client, p, s) for p, s in pairs]
        receipts, refused, twice, again = [sum(column) for column in zip(*sums)]
        errors = errors_of(pairs) + reads.errors
        assert not errors and refused == 0, errors[:20]
        client.close()
        ok("nothing is lost, out of order or refused", f"{receipts} receipts, {twice} entries twice, {again} received again")
        ok("a reader reads on", f"{reads.count} messages")
        with open(os.path.join(folder, "clients.log"), errors="replace") as log:
            wrong = [line for line in log if "ERROR" in line and "Connection closed" not in line and "Connection refused" not in line]
        # For a person who looks: what the client's own log calls an error and tries again by itself.
        ok("the client's log", f"{len(wrong)} lines besides lost connections{': ' + wrong[0].strip()[:160] if wrong else ''}")
        for broker in cluster.brokers:
            assert broker.stop() == 0
        ok("the brokers stop")


main()
