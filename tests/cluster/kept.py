"""Topics that keep what they are to keep under any broker: sends are stored once, and of each key the last message is there."""

import time

import pulsar

from servers import until

WAIT = 30_000


def path_of(topic):
    return "/admin/v2/" + topic.replace("://", "/")


class Numbered:
    """Messages that are sent again under their numbers, and are to be stored once."""

    def __init__(self, topic, count=60):
        self.topic, self.count, self.sent = topic, count, 0
        # Sent once, by a name that comes again much later.
        self.early = []

    def produce(self, client, count=None, waits=True):
        """Sends the last ones again, and some more; answers with the producer and what it was answered."""
        producer = client.create_producer(
            self.topic, producer_name="numbered", batching_enabled=False, send_timeout_millis=120_000, block_if_queue_full=True,
            max_pending_messages=50_000,
        )
        if waits:
            # Numbers begin at 1: the client takes none for 0.
            assert producer.last_sequence_id() == (self.sent or -1), (producer.last_sequence_id(), self.sent)
        answers = []
        first = max(1, self.sent - self.count // 2)
        self.sent += count or self.count
        for number in range(first, self.sent + 1):
            producer.send_async(str(number).encode(), lambda result, _: answers.append(result), sequence_id=number)
        if waits:
            producer.flush()
            self.answered(answers, self.sent + 1 - first)
            producer.close()
        return producer, answers, self.sent + 1 - first

    def goes_on(self, client, answered):
        """After a broker was killed that had answered so many: what it did not store is stored now."""
        producer = client.create_producer(self.topic, producer_name="numbered", batching_enabled=False)
        last = producer.last_sequence_id()
        assert answered <= last <= self.sent, (answered, last, self.sent)
        for number in range(max(1, answered - 5), self.sent + 1):
            producer.send(str(number).encode(), sequence_id=number)
        producer.close()

    @staticmethod
    def answered(answers, count):
        until("receipts", lambda: len(answers) >= count, 120)
        assert all(result == pulsar.Result.Ok for result in answers), [a for a in answers if a != pulsar.Result.Ok][:3]

    def produce_early(self, client):
        """The same few of another name each time."""
        producer = client.create_producer(self.topic, producer_name="early", batching_enabled=False)
        for number in range(1, 6):
            producer.send(f"early {number}".encode(), sequence_id=number)
        producer.close()

    def check(self, client):
        """Each is there once, in order."""
        reader = client.create_reader(self.topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(WAIT).data().decode())
        reader.close()
        numbers = [int(text) for text in found if not text.startswith("early")]
        assert numbers == list(range(1, self.sent + 1)), differences(numbers, range(1, self.sent + 1))
        early = [text for text in found if text.startswith("early")]
        assert early in ([], [f"early {number}" for number in range(1, 6)]), early
        return len(found)


def differences(found, wanted):
    twice = sorted({number for number in found if found.count(number) > 1}) if len(found) < 5_000 else len(found) - len(set(found))
    return {"found": len(found), "wanted": len(wanted), "missing": sorted(set(wanted) - set(found))[:5], "twice": twice}


class Keyed:
    """Messages with keys, of which the last ones are to be there."""

    def __init__(self, topic, count=600, **producer):
        self.topic, self.count, self.number = topic, count, 0
        self.producer = {"batching_enabled": False, **producer}
        # Of each key the last value, in the order of the last messages.
        self.last = {}

    def publish(self, client, keys=50, size=20):
        producer = client.create_producer(self.topic, block_if_queue_full=True, **self.producer)
        answers = []
        if not self.last:
            # Never published again: its message is trimmed before long, and then in what was compacted alone.
            self._send(producer, "old", "the first", answers)
        for _ in range(self.count):
            self.number += 1
            key = f"key {self.number % keys}"
            # Now and then a key is deleted.
            value = "" if self.number % 23 == 0 else f"{self.number} {'x' * size}"
            self._send(producer, key, value, answers)
        producer.flush()
        until("receipts", lambda: len(answers) == self.count + (self.number == self.count))
        assert all(result == pulsar.Result.Ok for result in answers), answers[:3]
        producer.close()

    def _send(self, producer, key, value, answers):
        self.last.pop(key, None)
        if value:
            self.last[key] = value
        producer.send_async(value.encode(), lambda result, _: answers.append(result), partition_key=key)

    def read(self, client):
        """Key, value and ledger of all that a reader of what is compacted gets, what is left out of batches apart."""
        reader = client.create_reader(self.topic, pulsar.MessageId.earliest, is_read_compacted=True)
        found = []
        while reader.has_message_available():
            message = reader.read_next(WAIT)
            if message.partition_key():
                found.append((message.partition_key(), message.data().decode(), message.message_id().ledger_id()))
        reader.close()
        return found

    def check(self, client, is_compacted):
        """What one table of them comes to, whatever is compacted; after a compaction there is nothing else."""
        found = self.read(client)
        table = {}
        for key, value, _ in found:
            table.pop(key, None)
            if value:
                table[key] = value
        assert list(table.items()) == list(self.last.items()), (self.topic, differences(list(table.items()), list(self.last.items())))
        if is_compacted:
            assert len(found) == len(self.last), (self.topic, len(found), len(self.last))
        return found

    def compact(self, broker, waits=True):
        status, answer = broker.ask(path_of(self.topic) + "/compaction", "PUT")
        assert status == 204, (status, answer)
        if waits:
            said = {}

            def is_done():
                said.update(broker.ask(path_of(self.topic) + "/compaction")[1])
                return said["status"] != "RUNNING"

            until("it is compacted", is_done)
            assert said["status"] == "SUCCESS", said

    def is_trimmed(self, broker, client):
        """Waits until the first message is in what was compacted alone."""
        ledger = self.read(client)[0][2]

        def is_gone():
            broker.ask(path_of(self.topic) + "/trim", "POST")
            stats = broker.ask(path_of(self.topic) + "/internalStats")[1]
            return ledger not in [row["ledgerId"] for row in stats["ledgers"]]

        until("what was compacted is trimmed", is_gone)


def outlasts(cluster, connect, serves, ok, takeover_max):
    """Topics that are compacted and deduplicated, while the broker that serves them is killed, twice: each time another one takes over."""
    one, two = cluster.brokers
    path = "/admin/v2/namespaces/public/kept"
    assert one.ask(path, "PUT", b"{}")[0] == 204
    kept = b'{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'
    assert one.ask(f"{path}/retention", "POST", kept)[0] == 204
    assert one.ask(f"{path}/deduplication", "POST", b"true")[0] == 204
    until("the namespace is known", lambda: two.ask(f"{path}/deduplication") == (200, "true"))
    numbered, keyed = Numbered("persistent://public/kept/numbered"), Keyed("persistent://public/kept/keyed", 6_000)
    topics = [numbered.topic, keyed.topic]
    for topic in topics:
        assert until("it is owned", lambda topic=topic: one.owner_of(topic)) == one.url
    client = connect(cluster.url)
    numbered.produce_early(client)
    numbered.produce(client)
    keyed.publish(client, 500, 1_000)
    keyed.compact(one)
    longest = 0
    for owner, other, pause in [(one, two, 0), (two, one, 0.2)]:
        keyed.publish(client, 400, 1_000)
        sending = numbered.produce(client, 5_000, waits=False)
        keyed.compact(owner, waits=False)
        until("some are answered", lambda sending=sending: len(sending[1]) > 500)
        time.sleep(pause)
        owner.kill()
        longest = max(longest, serves(other, topics)[1])
        assert longest < takeover_max, longest
        numbered.answered(sending[1], sending[2])
        sending[0].close()
        numbered.produce_early(client)
        numbered.produce(client)
        numbered.check(client)
        keyed.check(client, False)
        keyed.compact(other)
        keyed.check(client, True)
        owner.start()
        until("it is ready", lambda owner=owner: owner.ask("/admin/v2/brokers/ready")[0] == 200)
    client.close()
    ok("what is deduplicated and compacted outlasts its broker", f"{numbered.sent} numbers, taken over after {longest:.1f} s")
