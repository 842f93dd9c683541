"""Readers, seeking and the last message id: where in the topic to begin."""

import time

from pulsar import InitialPosition, MessageId

from harness import expect, expect_equal, numbered, receive, send_all, test


def read_all(reader):
    contents = []
    while reader.has_message_available():
        contents.append(reader.read_next(timeout_millis=15_000).data().decode())
    return contents


def _reader(env, name, **options):
    topic = env.topic(name)
    producer = env.client.create_producer(topic, **options)
    ids = send_all(producer, numbered(30))

    earliest = env.client.create_reader(topic, MessageId.earliest)
    expect_equal(read_all(earliest), numbered(30), "from earliest")
    latest = env.client.create_reader(topic, MessageId.latest)
    expect_equal(latest.has_message_available(), False, "something available at latest")
    exclusive = env.client.create_reader(topic, ids[13])
    expect_equal(read_all(exclusive), numbered(30)[14:], "after a message id")
    inclusive = env.client.create_reader(topic, ids[13], start_message_id_inclusive=True)
    expect_equal(read_all(inclusive), numbered(30)[13:], "from a message id on")
    again = env.client.create_reader(topic, MessageId.deserialize(ids[13].serialize()))
    expect_equal(read_all(again), numbered(30)[14:], "after a message id that was serialized")

    send_all(producer, ["next"])
    for name, reader in (("earliest", earliest), ("latest", latest), ("exclusive", exclusive)):
        expect_equal(reader.read_next(timeout_millis=15_000).data().decode(), "next", f"a new message at the {name} reader")
        expect_equal(reader.has_message_available(), False, f"more available at the {name} reader")


@test("reader")
def reader(env):
    _reader(env, "reader")


@test("reader-batched")
def reader_batched(env):
    _reader(env, "reader-batched", batching_enabled=True, batching_max_messages=10)


@test("reader-latest-inclusive")
def reader_latest_inclusive(env):
    topic = env.topic("reader-latest-inclusive")
    producer = env.client.create_producer(topic)
    send_all(producer, numbered(3))
    reader = env.client.create_reader(topic, MessageId.latest, start_message_id_inclusive=True)
    expect_equal(read_all(reader), ["m-2"], "from the last message on")


@test("reader-seek")
def reader_seek(env):
    topic = env.topic("reader-seek")
    producer = env.client.create_producer(topic)
    ids = send_all(producer, numbered(20))
    reader = env.client.create_reader(topic, MessageId.earliest)
    expect_equal(read_all(reader), numbered(20), "from earliest")
    reader.seek(ids[4])
    expect_equal(read_all(reader), numbered(20)[5:], "after seeking to a message id")
    reader.seek(MessageId.earliest)
    expect_equal(read_all(reader), numbered(20), "after seeking to earliest")


def contents_of(consumer, count):
    """The next messages, not acknowledged: a stock Pulsar may apply an ack that is under way after a seek, and undo it."""
    return [receive(consumer).data().decode() for _ in range(count)]


@test("seek-message-id")
def seek_message_id(env):
    topic = env.topic("seek")
    consumer = env.client.subscribe(topic, "s")
    inclusive = env.client.subscribe(topic, "t", start_message_id_inclusive=True)
    producer = env.client.create_producer(topic)
    ids = send_all(producer, numbered(20))
    for c in (consumer, inclusive):
        expect_equal(contents_of(c, 20), numbered(20), "contents at first")
    consumer.seek(ids[7])
    expect_equal(contents_of(consumer, 12), numbered(20)[8:], "after seeking back, exclusive")
    inclusive.seek(ids[7])
    expect_equal(contents_of(inclusive, 13), numbered(20)[7:], "after seeking back, inclusive")
    consumer.seek(MessageId.earliest)
    expect_equal(contents_of(consumer, 20), numbered(20), "after seeking to earliest")
    consumer.seek(MessageId.earliest)
    receive(consumer)
    consumer.seek(MessageId.latest)
    send_all(producer, ["next"])
    expect_equal(contents_of(consumer, 1), ["next"], "after seeking to latest")


@test("seek-time")
def seek_time(env):
    topic = env.topic("seek-time")
    consumer = env.client.subscribe(topic, "s")
    producer = env.client.create_producer(topic)
    send_all(producer, numbered(10, "old"))
    first = [receive(consumer) for _ in range(10)]
    while time.time() * 1000 < first[-1].publish_timestamp() + 2:
        pass
    send_all(producer, numbered(10, "new"))
    second = [receive(consumer) for _ in range(10)]
    expect(second[0].publish_timestamp() > first[-1].publish_timestamp(), "publish times do not grow")
    consumer.seek(second[0].publish_timestamp())
    expect_equal(contents_of(consumer, 10), numbered(10, "new"), "after seeking by time")
    consumer.seek(first[0].publish_timestamp() - 60_000)
    expect_equal(contents_of(consumer, 20), numbered(10, "old") + numbered(10, "new"), "after seeking to before it all")


@test("last-message-id")
def last_message_id(env):
    topic = env.topic("last-id")
    consumer = env.client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    expect_equal(consumer.get_last_message_id().entry_id(), -1, "entry id in an empty topic")
    producer = env.client.create_producer(topic)
    ids = send_all(producer, numbered(5))
    expect_equal(_id(consumer.get_last_message_id()), _id(ids[-1]), "last message id")
    batched = env.client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=500)
    ids = send_all(batched, numbered(7))
    expect_equal(_id(consumer.get_last_message_id()), _id(ids[-1]), "last message id of a batch")
    expect_equal(ids[-1].batch_index(), 6, "batch index of the last of seven")


def _id(message_id):
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()
