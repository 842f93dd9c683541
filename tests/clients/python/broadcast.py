"""Broadcast subscriptions: one name, every consumer gets everything. An extension of Pharos."""

from pulsar import ConsumerType

from harness import expect_equal, numbered, receive_ack, send_all, test

BROADCAST = {"pharos.subscription": "broadcast"}


def _broadcast(env, name, consumer_type, batching):
    topic = env.topic(name)

    def join(who):
        return env.client.subscribe(topic, "everyone", consumer_type, consumer_name=who, properties=BROADCAST)

    a, b, c = join("a"), join("b"), join("c")
    producer = env.client.create_producer(topic, batching_enabled=batching)
    send_all(producer, numbered(100))
    for consumer in (a, b, c):
        expect_equal(receive_ack(consumer, 100), numbered(100), f"contents at {consumer.consumer_name()}")
    c.close()
    send_all(producer, numbered(30, "missed"))
    for consumer in (a, b):
        expect_equal(receive_ack(consumer, 30), numbered(30, "missed"), f"contents at {consumer.consumer_name()} without c")
    c = join("c")
    # The sentinel shows that nothing came twice and nothing is left over.
    send_all(producer, ["sentinel"])
    expect_equal(receive_ack(c, 31), numbered(30, "missed") + ["sentinel"], "contents at c after joining again")
    for consumer in (a, b):
        expect_equal(receive_ack(consumer, 1), ["sentinel"], f"contents at {consumer.consumer_name()} at the end")


@test("broadcast-exclusive", extension=True)
def broadcast_exclusive(env):
    _broadcast(env, "broadcast-exclusive", ConsumerType.Exclusive, False)


@test("broadcast-shared", extension=True)
def broadcast_shared(env):
    _broadcast(env, "broadcast-shared", ConsumerType.Shared, False)


@test("broadcast-batched", extension=True)
def broadcast_batched(env):
    _broadcast(env, "broadcast-batched", ConsumerType.Failover, True)


@test("broadcast-cumulative", extension=True)
def broadcast_cumulative(env):
    topic = env.topic("broadcast-cumulative")

    def join(who):
        return env.client.subscribe(topic, "everyone", consumer_name=who, properties=BROADCAST)

    a, b = join("a"), join("b")
    producer = env.client.create_producer(topic)
    send_all(producer, numbered(20))
    got = [a.receive(timeout_millis=15_000) for _ in range(20)]
    a.acknowledge_cumulative(got[11])
    expect_equal(receive_ack(b, 20), numbered(20), "contents at b")
    a.close()
    send_all(producer, ["sentinel"])
    a = join("a")
    expect_equal(receive_ack(a, 9), numbered(20)[12:] + ["sentinel"], "a resumes after what it acknowledged")
    expect_equal(receive_ack(b, 1), ["sentinel"], "b did not get anything twice")
