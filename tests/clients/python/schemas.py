"""Typed messages."""

import pulsar
from pulsar import InitialPosition
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String, StringSchema

from harness import expect, expect_equal, expect_error, receive, test


class Reading(Record):
    sensor = String()
    value = Integer()


def next_reading():
    """The next version of `Reading`: the same name, one more field with a default."""

    class Reading(Record):  # the name is part of the schema
        sensor = String()
        value = Integer()
        unit = String(required_default=True)

    return Reading


class Incompatible(Record):
    sensor = Integer(required=True)


def _typed(env, name, schema):
    topic = env.topic(name)
    consumer = env.client.subscribe(topic, "s", schema=schema(Reading))
    producer = env.client.create_producer(topic, schema=schema(Reading))
    for index in range(10):
        producer.send(Reading(sensor=f"s-{index}", value=index))
    versions = set()
    for index in range(10):
        message = receive(consumer)
        value = message.value()
        expect_equal((value.sensor, value.value), (f"s-{index}", index), "value")
        versions.add(message.schema_version())
        consumer.acknowledge(message)
    expect_equal(len(versions), 1, "schema versions")
    first = versions.pop()
    expect(first, "no schema version on the message")
    expect_error(pulsar.IncompatibleSchema, lambda: env.client.create_producer(topic, schema=schema(Incompatible)),
                 "a producer with an incompatible schema")
    return topic, first


@test("schema-avro")
def avro(env):
    _typed(env, "avro", AvroSchema)


@test("schema-json")
def json(env):
    _typed(env, "json", JsonSchema)


@test("schema-avro-evolution")
def evolution(env):
    topic, first = _typed(env, "evolution", AvroSchema)
    newer = next_reading()
    consumer = env.client.subscribe(topic, "t", initial_position=InitialPosition.Latest)
    producer = env.client.create_producer(topic, schema=AvroSchema(newer))
    producer.send(newer(sensor="s", value=1, unit="K"))
    second = receive(consumer).schema_version()
    expect(second and second != first, f"schema version {second!r} after {first!r}")
    older = env.client.create_producer(topic, schema=AvroSchema(Reading))
    older.send(Reading(sensor="s", value=2))
    expect_equal(receive(consumer).schema_version(), first, "schema version of the older schema")


@test("schema-string")
def string(env):
    topic = env.topic("string")
    consumer = env.client.subscribe(topic, "s", schema=StringSchema())
    producer = env.client.create_producer(topic, schema=StringSchema())
    producer.send("grüße")
    message = receive(consumer)
    expect_equal(message.value(), "grüße", "value")
    expect(message.schema_version(), "no schema version on the message")
