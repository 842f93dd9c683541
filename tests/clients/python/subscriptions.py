"""The four ways of sharing a subscription."""

import pulsar
from pulsar import BatchingType, ConsumerType, InitialPosition

from harness import collect, expect, expect_equal, expect_error, numbered, receive, receive_ack, send_all, test


@test("exclusive")
def exclusive(env):
    topic = env.topic("exclusive")
    first = env.client.subscribe(topic, "s")
    expect_error(pulsar.ConsumerBusy, lambda: env.client.subscribe(topic, "s"), "a second exclusive consumer")
    expect_error(pulsar.ConsumerBusy, lambda: env.client.subscribe(topic, "s", ConsumerType.Shared), "another type")
    other = env.client.subscribe(topic, "t")
    producer = env.client.create_producer(topic, batching_enabled=True)
    send_all(producer, numbered(50))
    expect_equal(receive_ack(first, 50), numbered(50), "contents")
    expect_equal(receive_ack(other, 50), numbered(50), "contents on another subscription")
    first.close()
    again = env.client.subscribe(topic, "s")
    send_all(producer, ["next"])
    expect_equal(receive_ack(again, 1), ["next"], "after joining again")


def _shared(env, name, **options):
    topic = env.topic(name)
    consumers = [env.client.subscribe(topic, "s", ConsumerType.Shared, receiver_queue_size=10) for _ in range(3)]
    producer = env.client.create_producer(topic, **options)
    send_all(producer, numbered(300))
    got = collect(consumers, 300)
    expect_equal(sorted(m.data().decode() for _, m in got), sorted(numbered(300)), "all messages, each once")
    counts = [sum(1 for index, _ in got if index == c) for c in range(3)]
    expect(all(counts), f"one consumer got nothing: {counts}")


@test("shared")
def shared(env):
    _shared(env, "shared")


@test("shared-batched")
def shared_batched(env):
    _shared(env, "shared-batched", batching_enabled=True, batching_max_messages=10)


@test("shared-unacked-go-to-the-other")
def shared_leave(env):
    topic = env.topic("shared-leave")
    first = env.client.subscribe(topic, "s", ConsumerType.Shared, receiver_queue_size=100)
    producer = env.client.create_producer(topic)
    send_all(producer, numbered(20))
    for _ in range(10):
        receive(first)
    second = env.client.subscribe(topic, "s", ConsumerType.Shared)
    first.close()
    got = collect([second], 20)
    expect_equal(sorted(m.data().decode() for _, m in got), sorted(numbered(20)), "unacknowledged messages")


@test("failover")
def failover(env):
    topic = env.topic("failover")
    consumers = [env.client.subscribe(topic, "s", ConsumerType.Failover, consumer_name=f"c{index}") for index in range(2)]
    producer = env.client.create_producer(topic)
    send_all(producer, numbered(30))
    got = collect(consumers, 30, acknowledge=False)
    active = got[-1][0]
    expect({index for index, _ in got} == {active}, "more than one consumer is active")
    expect_equal([m.data().decode() for _, m in got], numbered(30), "contents at the active consumer")
    for _, message in got[:10]:
        consumers[active].acknowledge(message)
    consumers[active].close()
    standby = consumers[1 - active]
    expect_equal(receive_ack(standby, 20), numbered(30)[10:], "after the takeover")
    send_all(producer, ["next"])
    expect_equal(receive_ack(standby, 1), ["next"], "new messages after the takeover")


def _key_shared(env, name, **options):
    topic = env.topic(name)
    consumers = [env.client.subscribe(topic, "s", ConsumerType.KeyShared, receiver_queue_size=50) for _ in range(3)]
    producer = env.client.create_producer(topic, **options)
    keys = [f"key-{index}" for index in range(40)]
    for index in range(10):
        for key in keys:
            producer.send_async(f"{key} {index}".encode(), lambda *_: None, partition_key=key)
    producer.flush()
    got = collect(consumers, 400)
    owner, seen = {}, {}
    for index, message in got:
        key = message.partition_key()
        expect_equal(owner.setdefault(key, index), index, f"consumer of {key}")
        seen.setdefault(key, []).append(message.data().decode())
    for key in keys:
        expect_equal(seen.get(key), [f"{key} {index}" for index in range(10)], f"order of {key}")
    expect_equal(len(set(owner.values())), 3, "consumers with at least one key")


@test("key-shared")
def key_shared(env):
    _key_shared(env, "key-shared")


@test("key-shared-batched")
def key_shared_batched(env):
    _key_shared(env, "key-shared-batched", batching_enabled=True, batching_type=BatchingType.KeyBased)


@test("initial-position")
def initial_position(env):
    topic = env.topic("initial")
    producer = env.client.create_producer(topic)
    send_all(producer, numbered(5))
    earliest = env.client.subscribe(topic, "early", initial_position=InitialPosition.Earliest)
    latest = env.client.subscribe(topic, "late", initial_position=InitialPosition.Latest)
    send_all(producer, ["last"])
    expect_equal(receive_ack(earliest, 6), numbered(5) + ["last"], "from earliest")
    expect_equal(receive_ack(latest, 1), ["last"], "from latest")


@test("unsubscribe")
def unsubscribe(env):
    topic = env.topic("unsubscribe")
    producer = env.client.create_producer(topic)
    consumer = env.client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    keeper = env.client.subscribe(topic, "keeper", initial_position=InitialPosition.Earliest)
    send_all(producer, numbered(5))
    expect_equal(receive_ack(consumer, 5), numbered(5), "contents")
    consumer.unsubscribe()
    # The place is forgotten: the same name starts anew, and what "keeper" holds is there again.
    again = env.client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    expect_equal(receive_ack(again, 5), numbered(5), "contents after unsubscribe")
    expect_equal(receive_ack(keeper, 5), numbered(5), "contents of the other subscription")
