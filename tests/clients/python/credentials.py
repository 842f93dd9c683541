"""Credentials that expire while a consumer listens; runs only where run.sh was told which credentials to show."""

import os
import time

from harness import expect_equal, receive, test

SECONDS = float(os.environ.get("PHAROS_AUTH_SECONDS") or 0)


if SECONDS:

    @test("credentials-long-consume")
    def _(env):
        topic = env.topic("credentials")
        consumer = env.client.subscribe(topic, "s")
        producer = env.client.create_producer(topic)
        end, index = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            content = f"m-{index}"
            producer.send(content.encode())
            message = receive(consumer)
            expect_equal(message.data().decode(), content, "the next message")
            expect_equal(message.redelivery_count(), 0, "redelivery count")
            consumer.acknowledge(message)
            index += 1
            time.sleep(0.05)
        producer.close()
        consumer.close()
