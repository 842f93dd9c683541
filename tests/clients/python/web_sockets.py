"""Producers, consumers and readers by WebSocket, with the package `websocket-client`, beside the client's own."""

import base64
import json
import os
import threading

import pulsar
import websocket
from harness import expect, expect_equal, receive, test


def text(content):
    return base64.b64encode(content.encode()).decode()


def content(message):
    return base64.b64decode(message["payload"]).decode()


class Socket:
    def __init__(self, env, kind, topic, rest=""):
        scheme, host = env.admin.split("://")
        url = f"{'wss' if scheme == 'https' else 'ws'}://{host}/ws/v2/{kind}/{topic.replace('://', '/')}{rest}"
        self.socket = websocket.create_connection(url, timeout=15)

    def say(self, **fields):
        self.socket.send(json.dumps(fields))

    def hear(self):
        return json.loads(self.socket.recv())

    def produce(self, what, **fields):
        self.say(payload=text(what), context=what, **fields)
        answer = self.hear()
        expect_equal((answer["result"], answer["context"]), ("ok", what), "the answer")
        return answer["messageId"]

    def consume(self):
        message = self.hear()
        self.say(messageId=message["messageId"])
        return content(message)

    def close(self):
        self.socket.close()


# Where clients are to show who they are there is another suite.
if not os.environ.get("PHAROS_AUTH"):

    @test("websocket-crosses-with-the-client")
    def _(env):
        topic = env.topic("websocket")
        ours = env.client.subscribe(topic, "ours")
        socket = Socket(env, "consumer", topic, "/theirs?subscriptionType=Shared")
        producer = Socket(env, "producer", topic)
        message_id = producer.produce("by websocket", key="k", properties={"a": "b"})
        message = receive(ours)
        expect_equal(message.data().decode(), "by websocket", "the message")
        expect_equal((message.partition_key(), message.properties()), ("k", {"a": "b"}), "key and properties")
        ours.acknowledge(message)
        heard = socket.hear()
        expect_equal((content(heard), heard["messageId"], heard["key"]), ("by websocket", message_id, "k"), "the message")
        expect_equal((heard["properties"], heard["redeliveryCount"]), ({"a": "b"}, 0), "properties and count")
        socket.say(messageId=heard["messageId"])
        for compression in (pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4, pulsar.CompressionType.ZLib,
                            pulsar.CompressionType.ZSTD, pulsar.CompressionType.SNAPPY):
            sender = env.client.create_producer(
                topic, compression_type=compression, batching_enabled=True, batching_max_publish_delay_ms=50)
            done = [threading.Event() for _ in range(3)]
            for index, event in enumerate(done):
                sender.send_async(f"{compression}-{index}".encode(), lambda *_, event=event: event.set())
            sender.flush()
            expect(all(event.wait(15) for event in done), "receipts")
            for index in range(3):
                expect_equal(socket.consume(), f"{compression}-{index}", "a member of a batch")
            sender.close()
        for it in (producer, socket, ours):
            it.close()

    @test("websocket-negative-ack-and-pull")
    def _(env):
        topic = env.topic("websocket-nack")
        consumer = Socket(
            env, "consumer", topic, "/s?subscriptionType=Shared&pullMode=true&negativeAckRedeliveryDelay=100")
        producer = Socket(env, "producer", topic)
        for index in range(3):
            producer.produce(str(index))
        consumer.say(type="permit", permitMessages=1)
        first = consumer.hear()
        expect_equal(content(first), "0", "the first")
        consumer.say(type="negativeAcknowledge", messageId=first["messageId"])
        consumer.say(type="permit", permitMessages=3)
        rest = []
        for _ in range(3):
            message = consumer.hear()
            consumer.say(messageId=message["messageId"])
            rest.append((content(message), message["redeliveryCount"]))
        expect_equal(sorted(rest), [("0", 1), ("1", 0), ("2", 0)], "the rest")
        consumer.say(type="isEndOfTopic")
        expect_equal(consumer.hear()["endOfTopic"], False, "the end of the topic")
        producer.close()
        consumer.close()

    @test("websocket-reader")
    def _(env):
        topic = env.topic("websocket-reader")
        producer = Socket(env, "producer", topic)
        for index in range(5):
            producer.produce(str(index))
        reader = Socket(env, "reader", topic, "?messageId=earliest&receiverQueueSize=2")
        expect_equal([reader.consume() for _ in range(5)], ["0", "1", "2", "3", "4"], "all messages")
        producer.produce("5")
        expect_equal(reader.consume(), "5", "the next")
        producer.close()
        reader.close()

    @test("websocket-partitions")
    def _(env):
        topic = env.topic("websocket-partitions")
        env.create_partitioned(topic, 3)
        consumer = Socket(env, "consumer", topic, "/s")
        producer = Socket(env, "producer", topic)
        sent = [str(index) for index in range(9)]
        for what in sent:
            producer.produce(what)
        expect_equal(sorted(consumer.consume() for _ in sent), sent, "all messages")
        producer.close()
        consumer.close()

    @test("websocket-broadcast", extension=True)
    def _(env):
        topic = env.topic("websocket-broadcast")
        names = ["ann", "bob"]
        open_all = lambda: [  # noqa: E731
            Socket(env, "consumer", topic, f"/all?subscriptionType=Broadcast&consumerName={name}") for name in names]
        consumers = open_all()
        producer = Socket(env, "producer", topic)
        producer.produce("x")
        expect_equal([consumer.consume() for consumer in consumers], ["x", "x"], "a message for all")
        for consumer in consumers:
            consumer.close()
        producer.produce("y")
        consumers = open_all()
        expect_equal([content(consumer.hear()) for consumer in consumers], ["y", "y"], "what came meanwhile")
        for it in [producer, *consumers]:
            it.close()
