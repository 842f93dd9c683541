"""Load with a memory: what was acknowledged, when, and under which id; and what was received."""

import threading
import time

import pulsar


def number_of(message):
    return int(message.data().decode().split(" ", 1)[0])


def place_of(message_id):
    return (message_id.ledger_id(), message_id.entry_id())


class Publisher:
    """Publishes rising numbers to one topic, one after the other, without waiting for receipts."""

    def __init__(self, client, topic, rate=200):
        self.topic = topic
        # One entry for each message, so that a receipt names an entry. The client sends again until it is answered.
        self.producer = client.create_producer(
            topic, batching_enabled=False, send_timeout_millis=120_000, max_pending_messages=50_000, block_if_queue_full=True
        )
        self.receipts, self.times, self.refused = {}, [], {}
        self.out_of_order = []
        self._last, self._sent = -1, 0
        self._pause, self._stop = 1 / rate, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(self._pause):
            number = self._sent
            self._sent += 1
            body = f"{number} {'x' * 200}".encode()
            self.producer.send_async(body, lambda result, place, number=number: self._answered(number, result, place))

    def _answered(self, number, result, place):
        self.times.append(time.monotonic())
        if result != pulsar.Result.Ok:
            self.refused[number] = str(result)
            return
        if number <= self._last:
            self.out_of_order.append(number)
        self._last = number
        self.receipts[number] = place_of(place)

    def finish(self, seconds=60):
        self._stop.set()
        self._thread.join()
        end = time.monotonic() + seconds
        while len(self.receipts) + len(self.refused) < self._sent:
            assert time.monotonic() < end, f"{self.topic}: {self._sent - len(self.receipts)} sends are not answered"
            time.sleep(0.05)
        self.producer.close()

    def answered(self):
        return len(self.times)

    def longest_pause(self, since, until):
        """The longest time without a receipt between two moments, in seconds."""
        times = [since, *(t for t in self.times if since <= t <= until), until]
        return max(later - earlier for earlier, later in zip(times, times[1:]))


class Subscriber:
    """Receives and acknowledges everything, and remembers the numbers that it saw for the first time."""

    def __init__(self, client, topic, kind, name="s"):
        self.topic, self.kind = topic, kind
        self.seen, self.order, self.duplicates = set(), [], 0
        self.consumer = client.subscribe(
            topic, name, consumer_type=kind, initial_position=pulsar.InitialPosition.Earliest
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
                self.duplicates += 1
            else:
                self.seen.add(number)
                self.order.append(number)
            self.consumer.acknowledge(message)

    def stop(self):
        self._stop.set()
        self._thread.join()


def everything_in(client, topic):
    """Numbers and places of all that is in a topic, in order."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        message = reader.read_next(timeout_millis=30_000)
        found.append((number_of(message), place_of(message.message_id())))
    reader.close()
    return found


def rises(numbers):
    return all(earlier < later for earlier, later in zip(numbers, numbers[1:]))


def check(client, publisher, subscriber):
    """Compares the receipts with the topic, and both with what was received."""
    topic = publisher.topic
    assert not publisher.out_of_order, f"{topic}: receipts out of order: {publisher.out_of_order[:10]}"
    log = everything_in(client, topic)
    at = {place: number for number, place in log}
    wrong = {n: (place, at.get(place)) for n, place in publisher.receipts.items() if at.get(place) != n}
    assert not wrong, f"{topic}: acknowledged and not where the receipt says: {dict(list(wrong.items())[:10])}"
    # What was sent again after a reconnect may be there twice; what is there first must be in the order of the sends.
    first = list(dict.fromkeys(number for number, _ in log))
    assert rises(first), f"{topic}: out of order"
    end = time.monotonic() + 30
    while not subscriber.seen >= publisher.receipts.keys():
        assert time.monotonic() < end, f"{topic}: acknowledged and not received: {sorted(publisher.receipts.keys() - subscriber.seen)[:10]}"
        time.sleep(0.05)
    subscriber.stop()
    if subscriber.kind != pulsar.ConsumerType.Shared:
        assert rises(subscriber.order), f"{topic}: received out of order"
    return len(publisher.receipts), len(publisher.refused), len(log) - len(first), subscriber.duplicates
