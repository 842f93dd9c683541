"""Cumulative and batch-index acknowledgement, and what is remembered of them."""

from pulsar import ConsumerType

from harness import expect_equal, numbered, receive, receive_ack, send_all, test


@test("cumulative-ack")
def cumulative(env):
    topic = env.topic("cumulative")
    consumer = env.client.subscribe(topic, "s")
    producer = env.client.create_producer(topic)
    send_all(producer, numbered(20))
    messages = [receive(consumer) for _ in range(20)]
    consumer.acknowledge_cumulative(messages[11])
    consumer.close()
    consumer = env.client.subscribe(topic, "s")
    expect_equal(receive_ack(consumer, 8), numbered(20)[12:], "after joining again")


@test("individual-ack-with-holes")
def holes(env):
    topic = env.topic("holes")
    consumer = env.client.subscribe(topic, "s", ConsumerType.Shared)
    producer = env.client.create_producer(topic)
    send_all(producer, numbered(20))
    for index in range(20):
        message = receive(consumer)
        if index % 3:
            consumer.acknowledge(message)
    consumer.close()
    consumer = env.client.subscribe(topic, "s", ConsumerType.Shared)
    expect_equal(sorted(receive_ack(consumer, 7)), sorted(numbered(20)[::3]), "after joining again")
    send_all(producer, ["sentinel"])
    expect_equal(receive_ack(consumer, 1), ["sentinel"], "nothing else comes again")


def _one_batch(env, topic, count):
    producer = env.client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    ids = send_all(producer, numbered(count))
    expect_equal({(i.ledger_id(), i.entry_id()) for i in ids}, {(ids[0].ledger_id(), ids[0].entry_id())}, "one batch")
    return producer


@test("batch-index-ack")
def batch_index(env):
    topic = env.topic("batch-index")
    consumer = env.client.subscribe(topic, "s", ConsumerType.Shared, batch_index_ack_enabled=True)
    producer = _one_batch(env, topic, 20)
    for index in range(20):
        message = receive(consumer)
        if index % 2:
            consumer.acknowledge(message)
    consumer.close()
    consumer = env.client.subscribe(topic, "s", ConsumerType.Shared, batch_index_ack_enabled=True)
    expect_equal(receive_ack(consumer, 10), numbered(20)[::2], "the unacknowledged half of the batch")
    send_all(producer, ["sentinel"])
    expect_equal(receive_ack(consumer, 1), ["sentinel"], "nothing else comes again")


@test("batch-index-ack-cumulative")
def batch_index_cumulative(env):
    topic = env.topic("batch-index-cumulative")
    consumer = env.client.subscribe(topic, "s", batch_index_ack_enabled=True)
    _one_batch(env, topic, 20)
    messages = [receive(consumer) for _ in range(20)]
    consumer.acknowledge_cumulative(messages[11])
    consumer.close()
    consumer = env.client.subscribe(topic, "s", batch_index_ack_enabled=True)
    expect_equal(receive_ack(consumer, 8), numbered(20)[12:], "the rest of the batch")
