package clients;

import static clients.Env.*;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.Field;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.GenericSchema;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/** Typed messages. */
final class Schemas {
    static void register(Suite suite) {
        suite.add("schema-avro", env -> typed(env, Schema.AVRO(Reading.class), Schema.AVRO(Other.class)));
        suite.add("schema-json", env -> typed(env, Schema.JSON(Reading.class), Schema.JSON(Other.class)));
        suite.add("schema-string", Schemas::string);
        suite.add("schema-avro-evolution", Schemas::evolution);
        suite.add("schema-auto-consume", Schemas::auto);
        suite.add("schema-key-value", Schemas::keyValue);
    }

    /** What most tests send. */
    public static final class Reading {
        public String sensor;
        public int value;

        public Reading() {}

        Reading(String sensor, int value) {
            this.sensor = sensor;
            this.value = value;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Reading r && Objects.equals(r.sensor, sensor) && r.value == value;
        }

        @Override
        public int hashCode() {
            return Objects.hash(sensor, value);
        }

        @Override
        public String toString() {
            return sensor + "=" + value;
        }
    }

    /** Not compatible with Reading. */
    public static final class Other {
        public long sensor;
    }

    private static void typed(Env env, Schema<Reading> schema, Schema<Other> other) throws Exception {
        String topic = env.topic("schema");
        Consumer<Reading> consumer = env.client.newConsumer(schema).topic(topic).subscriptionName("s").subscribe();
        Producer<Reading> producer = env.client.newProducer(schema).topic(topic).create();
        for (int i = 0; i < 10; i++) {
            producer.send(new Reading("s-" + i, i));
        }
        byte[] version = null;
        for (int i = 0; i < 10; i++) {
            Message<Reading> message = receive(consumer);
            expectEqual(message.getValue(), new Reading("s-" + i, i), "value");
            expect(message.getSchemaVersion() != null, "no schema version on the message");
            expect(version == null || Arrays.equals(version, message.getSchemaVersion()), "the schema version changes");
            version = message.getSchemaVersion();
            consumer.acknowledge(message);
        }
        // Versions are numbered from 0, eight bytes.
        expectEqual(ByteBuffer.wrap(version).getLong(), 0L, "schema version");
        expectError(PulsarClientException.IncompatibleSchemaException.class, "a producer with an incompatible schema",
                () -> env.client.newProducer(other).topic(topic).create());
    }

    private static void string(Env env) throws Exception {
        String topic = env.topic("schema-string");
        Consumer<String> consumer = env.client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s").subscribe();
        env.client.newProducer(Schema.STRING).topic(topic).create().send("grüße");
        Message<String> message = receive(consumer);
        expectEqual(message.getValue(), "grüße", "value");
        expect(message.getSchemaVersion() != null, "no schema version on the message");
    }

    private static GenericSchema<GenericRecord> record(String fields) {
        String definition = "{\"type\":\"record\",\"name\":\"Reading\",\"fields\":[" + fields + "]}";
        return Schema.generic(SchemaInfo.builder().name("Reading").type(SchemaType.AVRO).schema(bytes(definition))
                .properties(Map.of()).build());
    }

    private static void evolution(Env env) throws Exception {
        String topic = env.topic("schema-evolution");
        String fields = "{\"name\":\"sensor\",\"type\":\"string\"},{\"name\":\"value\",\"type\":\"int\"}";
        GenericSchema<GenericRecord> first = record(fields);
        GenericSchema<GenericRecord> second = record(fields + ",{\"name\":\"unit\",\"type\":\"string\",\"default\":\"K\"}");
        GenericRecord a = first.newRecordBuilder().set("sensor", "a").set("value", 1).build();
        GenericRecord b = second.newRecordBuilder().set("sensor", "b").set("value", 2).set("unit", "C").build();
        env.client.newProducer(first).topic(topic).create().send(a);
        Consumer<GenericRecord> consumer = env.client.newConsumer(Schema.AUTO_CONSUME()).topic(topic).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        env.client.newProducer(second).topic(topic).create().send(b);
        // A definition that is known already is not a new version.
        env.client.newProducer(first).topic(topic).create().send(a);
        for (long version : new long[] {0, 1, 0}) {
            Message<GenericRecord> message = receive(consumer);
            expectEqual(ByteBuffer.wrap(message.getSchemaVersion()).getLong(), version, "schema version");
            expectEqual(message.getValue().getField("sensor"), version == 0 ? "a" : "b", "a field decoded with that version");
        }
    }

    private static void auto(Env env) throws Exception {
        String topic = env.topic("schema-auto");
        Producer<Reading> producer = env.client.newProducer(Schema.JSON(Reading.class)).topic(topic).create();
        Consumer<GenericRecord> consumer =
                env.client.newConsumer(Schema.AUTO_CONSUME()).topic(topic).subscriptionName("s").subscribe();
        producer.send(new Reading("s", 7));
        GenericRecord record = receive(consumer).getValue();
        expectEqual(record.getFields().stream().map(Field::getName).sorted().toList(), List.of("sensor", "value"), "fields");
        expectEqual(((Number) record.getField("value")).intValue(), 7, "a field's value");
        // AUTO_PRODUCE_BYTES fetches the topic's schema and checks what it is given against it.
        env.client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(topic).create().send(bytes("{\"sensor\":\"t\",\"value\":8}"));
        expectEqual(receive(consumer).getValue().getField("sensor"), "t", "a field's value");
    }

    private static void keyValue(Env env) throws Exception {
        String topic = env.topic("schema-key-value");
        Schema<KeyValue<String, Integer>> schema = Schema.KeyValue(Schema.STRING, Schema.INT32, KeyValueEncodingType.SEPARATED);
        Consumer<KeyValue<String, Integer>> consumer = env.client.newConsumer(schema).topic(topic).subscriptionName("s").subscribe();
        env.client.newProducer(schema).topic(topic).create().send(new KeyValue<>("k", 5));
        Message<KeyValue<String, Integer>> message = receive(consumer);
        expectEqual(Map.of(message.getValue().getKey(), message.getValue().getValue()), Map.of("k", 5), "key and value");
    }
}
