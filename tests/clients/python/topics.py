"""Partitioned topics and subscriptions by pattern."""

import re
from unittest import mock

import _pulsar
from pulsar import ConsumerType, InitialPosition, PartitionsRoutingMode

from harness import collect, expect_equal, numbered, receive, receive_ack, send_all, test


@test("partitioned")
def partitioned(env):
    topic = env.topic("partitioned")
    env.create_partitioned(topic, 4)
    names = [f"{topic}-partition-{index}" for index in range(4)]
    expect_equal(sorted(env.client.get_topic_partitions(topic)), names, "partitions")
    consumer = env.client.subscribe(topic, "s")
    producer = env.client.create_producer(topic, message_routing_mode=PartitionsRoutingMode.RoundRobinDistribution)
    send_all(producer, numbered(80))
    got = [m for _, m in collect([consumer], 80)]
    expect_equal(sorted(m.data().decode() for m in got), sorted(numbered(80)), "all messages, each once")
    expect_equal(sorted({m.topic_name() for m in got}), names, "partitions used")
    expect_equal({m.message_id().partition() for m in got}, {0, 1, 2, 3}, "partitions in the message ids")


@test("partitioned-by-key")
def partitioned_by_key(env):
    topic = env.topic("partitioned-key")
    env.create_partitioned(topic, 3)
    consumers = [env.client.subscribe(topic, "s", ConsumerType.Failover, consumer_name=f"c{i}") for i in range(2)]
    producer = env.client.create_producer(topic, batching_enabled=True)
    for index in range(10):
        for key in range(20):
            producer.send_async(f"{key} {index}".encode(), lambda *_: None, partition_key=f"key-{key}")
    producer.flush()
    seen = {}
    for _, message in collect(consumers, 200):
        seen.setdefault((message.partition_key(), message.topic_name()), []).append(message.data().decode())
    expect_equal(len(seen), 20, "keys, each in one partition")
    for (key, _), contents in seen.items():
        expect_equal(contents, [f"{key[4:]} {index}" for index in range(10)], f"order of {key}")


class ShortDiscovery(_pulsar.ConsumerConfiguration):
    """`subscribe` of this client takes `pattern_auto_discovery_period` and drops it, so the default of a minute would hold."""

    def __init__(self):
        super().__init__()
        self.pattern_auto_discovery_period(1)


@test("pattern")
def pattern(env):
    base = env.topic("pattern")
    early = env.client.create_producer(f"{base}-early")
    with mock.patch.object(_pulsar, "ConsumerConfiguration", ShortDiscovery):
        consumer = env.client.subscribe(re.compile(f"{base}-.*"), "s", initial_position=InitialPosition.Earliest)
    early.send(b"early")
    expect_equal(receive_ack(consumer, 1), ["early"], "from the topic that was there")
    late = env.client.create_producer(f"{base}-late")
    late.send(b"late")
    message = receive(consumer)
    expect_equal((message.data(), message.topic_name()), (b"late", f"{base}-late"), "from the topic that came later")
    consumer.acknowledge(message)


@test("multi-topics")
def multi_topics(env):
    topics = [env.topic(f"multi-{index}") for index in range(3)]
    consumer = env.client.subscribe(topics, "s")
    for topic in topics:
        send_all(env.client.create_producer(topic), numbered(10, topic))
    got = [m for _, m in collect([consumer], 30)]
    for topic in topics:
        expect_equal([m.data().decode() for m in got if m.topic_name() == topic], numbered(10, topic), "contents of one topic")
