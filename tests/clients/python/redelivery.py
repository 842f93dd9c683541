"""Negative acknowledgement, ack timeout and the dead letter topic."""

from pulsar import ConsumerDeadLetterPolicy, ConsumerType, InitialPosition

from harness import expect, expect_equal, numbered, receive, receive_ack, send_all, test


def _negative(env, name, **options):
    topic = env.topic(name)
    consumer = env.client.subscribe(topic, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    producer = env.client.create_producer(topic, **options)
    send_all(producer, numbered(20))
    for _ in range(20):
        message = receive(consumer)
        expect_equal(message.redelivery_count(), 0, "redelivery count at first")
        if int(message.data().decode()[2:]) % 2:
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    odd = sorted(f"m-{index}" for index in range(1, 20, 2))
    for round_index in (1, 2):
        again = [receive(consumer) for _ in range(10)]
        expect_equal(sorted(m.data().decode() for m in again), odd, f"redelivered in round {round_index}")
        for message in again:
            expect_equal(message.redelivery_count(), round_index, "redelivery count")
            (consumer.negative_acknowledge if round_index == 1 else consumer.acknowledge)(message)
    send_all(producer, ["sentinel"])
    expect_equal(receive_ack(consumer, 1), ["sentinel"], "after all are acknowledged")


@test("negative-ack")
def negative_ack(env):
    _negative(env, "negative-ack")


@test("negative-ack-batched")
def negative_ack_batched(env):
    # Half of one batch comes back, and not the half that was acknowledged.
    topic = env.topic("negative-ack-batched")
    consumer = env.client.subscribe(topic, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=100,
                                    batch_index_ack_enabled=True)
    producer = env.client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=500)
    send_all(producer, numbered(20))
    messages = [receive(consumer) for _ in range(20)]
    for index, message in enumerate(messages):
        (consumer.negative_acknowledge if index % 2 else consumer.acknowledge)(message)
    expect_equal(sorted(receive_ack(consumer, 10)), sorted(numbered(20)[1::2]), "redelivered")


@test("negative-ack-exclusive")
def negative_ack_exclusive(env):
    topic = env.topic("negative-ack-exclusive")
    consumer = env.client.subscribe(topic, "s", negative_ack_redelivery_delay_ms=100)
    producer = env.client.create_producer(topic)
    send_all(producer, numbered(5))
    messages = [receive(consumer) for _ in range(5)]
    consumer.acknowledge(messages[0])
    for message in messages[1:]:
        consumer.negative_acknowledge(message)
    expect_equal(receive_ack(consumer, 4), numbered(5)[1:], "redelivered, in order")


@test("redeliver-unacknowledged")
def redeliver_unacknowledged(env):
    topic = env.topic("redeliver")
    consumer = env.client.subscribe(topic, "s")
    producer = env.client.create_producer(topic)
    send_all(producer, numbered(10))
    messages = [receive(consumer) for _ in range(10)]
    consumer.acknowledge_cumulative(messages[3])
    consumer.redeliver_unacknowledged_messages()
    expect_equal(receive_ack(consumer, 6), numbered(10)[4:], "redelivered")


@test("ack-timeout")
def ack_timeout(env):
    topic = env.topic("ack-timeout")
    # The client does not take less than ten seconds.
    consumer = env.client.subscribe(topic, "s", ConsumerType.Shared, unacked_messages_timeout_ms=10_000)
    producer = env.client.create_producer(topic)
    send_all(producer, numbered(4))
    messages = [receive(consumer) for _ in range(4)]
    consumer.acknowledge(messages[0])
    again = []
    for _ in range(3):
        message = receive(consumer, 30_000)
        expect(message.redelivery_count() >= 1, "redelivery count stays 0")
        again.append(message.data().decode())
        consumer.acknowledge(message)
    expect_equal(sorted(again), numbered(4)[1:], "redelivered")


@test("dead-letter")
def dead_letter(env):
    topic = env.topic("dead-letter")
    dead_topic = f"{topic}-s-DLQ"
    policy = ConsumerDeadLetterPolicy(2, dead_topic, "sink")
    consumer = env.client.subscribe(topic, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=100,
                                    dead_letter_policy=policy)
    producer = env.client.create_producer(topic)
    dead = env.client.subscribe(dead_topic, "sink", initial_position=InitialPosition.Earliest)
    producer.send(b"poison", properties={"who": "me"}, partition_key="k")
    producer.send(b"fine")
    deliveries = []
    # One delivery and two redeliveries of "poison", one delivery of "fine".
    for _ in range(4):
        message = receive(consumer)
        deliveries.append((message.data().decode(), message.redelivery_count()))
        (consumer.acknowledge if message.data() == b"fine" else consumer.negative_acknowledge)(message)
    expect_equal(sorted(deliveries), [("fine", 0), ("poison", 0), ("poison", 1), ("poison", 2)], "deliveries and their counts")
    message = receive(dead)
    expect_equal(message.data(), b"poison", "content in the dead letter topic")
    expect_equal(message.properties().get("who"), "me", "its property")
    expect_equal(message.partition_key(), "k", "its key")
    dead.acknowledge(message)
    producer.send(b"sentinel")
    expect_equal(receive_ack(consumer, 1), ["sentinel"], "the subscription goes on")

