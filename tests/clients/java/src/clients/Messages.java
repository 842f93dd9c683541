package clients;

import static clients.Env.*;

import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;

/** What a message carries, that it arrives whole and in order, and who may send. */
final class Messages {
    static void register(Suite suite) {
        for (CompressionType compression : CompressionType.values()) {
            String name = compression.name().toLowerCase();
            suite.add("produce-single-" + name, env -> produce(env, env.producer(env.topic("produce")), compression));
            suite.add("produce-batched-" + name,
                    env -> produce(env, env.batching(env.topic("produce")).batchingMaxMessages(30), compression));
        }
        suite.add("chunked-20mb", Messages::chunked);
        suite.add("empty-and-null-value", Messages::empty);
        suite.add("non-persistent", Messages::nonPersistent);
        suite.add("delayed", Messages::delayed);
        suite.add("table-view", Messages::tableView);
        for (CompressionType compression : CompressionType.values()) {
            suite.add("compaction-" + compression.name().toLowerCase(), env -> compaction(env, compression));
        }
        suite.add("producer-exclusive", Messages::exclusive);
        suite.add("producer-wait-for-exclusive", Messages::waitForExclusive);
        suite.add("producer-exclusive-with-fencing", Messages::fencing);
        suite.add("producer-name-conflict", Messages::nameConflict);
        suite.add("deduplication", Messages::deduplication);
    }

    private static void produce(Env env, ProducerBuilder<byte[]> builder, CompressionType compression) throws Exception {
        Producer<byte[]> producer = builder.compressionType(compression).create();
        Consumer<byte[]> consumer = env.consumer(producer.getTopic(), "s").subscribe();
        List<CompletableFuture<MessageId>> receipts = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            receipts.add(producer.newMessage().value(bytes(i + " " + "abcdefgh".repeat(i % 50))).key("key-" + i % 7)
                    .orderingKey(bytes("order-" + i % 3)).property("index", "" + i).property("empty", "")
                    .eventTime(1_700_000_000_000L + i).sequenceId(1000 + i).sendAsync());
        }
        producer.flush();
        for (int i = 0; i < 200; i++) {
            Message<byte[]> message = receive(consumer);
            expectEqual(text(message), i + " " + "abcdefgh".repeat(i % 50), "content");
            expectEqual(message.getKey(), "key-" + i % 7, "key");
            expectEqual(new String(message.getOrderingKey()), "order-" + i % 3, "ordering key");
            expectEqual(message.getProperties(), Map.of("index", "" + i, "empty", ""), "properties");
            expectEqual(message.getEventTime(), 1_700_000_000_000L + i, "event time");
            expectEqual(message.getSequenceId(), 1000L + i, "sequence id");
            expectEqual(message.getTopicName(), producer.getTopic(), "topic name");
            expectEqual(message.getProducerName(), producer.getProducerName(), "producer name");
            expectEqual(message.getRedeliveryCount(), 0, "redelivery count");
            expectEqual(message.getMessageId(), receipts.get(i).get(15, TimeUnit.SECONDS), "message id");
            expect(Math.abs(message.getPublishTime() - System.currentTimeMillis()) < 60_000, "publish time is far from now");
            consumer.acknowledge(message);
        }
    }

    private static void chunked(Env env) throws Exception {
        String topic = env.topic("chunked");
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscribe();
        Producer<byte[]> producer = env.producer(topic).enableChunking(true).create();
        byte[] content = new byte[20 * 1024 * 1024];
        new Random(7).nextBytes(content);
        producer.send(bytes("before"));
        producer.send(content);
        producer.send(bytes("after"));
        expectEqual(text(receive(consumer)), "before", "message before");
        Message<byte[]> message = receive(consumer);
        expectEqual(hash(message.getData()), hash(content), "hash of the chunked message");
        consumer.acknowledge(message);
        expectEqual(text(receive(consumer)), "after", "message after");
    }

    private static String hash(byte[] content) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(content));
    }

    private static void empty(Env env) throws Exception {
        String topic = env.topic("empty");
        Consumer<String> consumer = env.client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s").subscribe();
        Producer<String> producer = env.client.newProducer(Schema.STRING).topic(topic).create();
        producer.newMessage().value("").send();
        producer.newMessage().key("gone").value(null).send();
        expectEqual(receive(consumer).getValue(), "", "empty message");
        Message<String> second = receive(consumer);
        expectEqual(second.getKey(), "gone", "key of the null value");
        expectEqual(second.getValue(), null, "null value");
    }

    private static void nonPersistent(Env env) throws Exception {
        String topic = env.topic("np").replace("persistent://", "non-persistent://");
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscribe();
        Producer<byte[]> producer = env.producer(topic).create();
        for (String content : numbered(20)) {
            producer.send(bytes(content));
        }
        expectEqual(receiveAck(consumer, 20), numbered(20), "contents");
    }

    private static void delayed(Env env) throws Exception {
        String topic = env.topic("delayed");
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe();
        Producer<byte[]> producer = env.producer(topic).create();
        long sent = System.nanoTime();
        producer.newMessage().value(bytes("later")).deliverAfter(3, TimeUnit.SECONDS).send();
        producer.newMessage().value(bytes("now")).send();
        expectEqual(receiveAck(consumer, 2), List.of("now", "later"), "order");
        // A broker may be early by one tick of its delay tracker, which is one second unless configured.
        long waitedMs = (System.nanoTime() - sent) / 1_000_000;
        expect(waitedMs >= 1900 && waitedMs <= 10_000, "delivered after " + waitedMs + " ms, asked for 3000");
    }

    private static void tableView(Env env) throws Exception {
        String topic = env.topic("table");
        Producer<byte[]> producer = env.batching(topic).create();
        for (int i = 0; i < 30; i++) {
            producer.newMessage().key("k-" + i % 10).value(bytes("v-" + i)).sendAsync();
        }
        producer.flush();
        try (TableView<byte[]> view = env.client.newTableView(Schema.BYTES).topic(topic)
                .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).create()) {
            expectEqual(view.size(), 10, "keys at first");
            expectEqual(new String(view.get("k-3")), "v-23", "last value of a key");
            producer.newMessage().key("k-3").value(bytes("new")).sendAsync();
            producer.flush();
            waitUntil("the view sees an update", () -> "new".equals(new String(view.get("k-3"))));
            producer.newMessage().key("k-4").value(null).sendAsync();
            producer.flush();
            waitUntil("the view drops a key", () -> !view.containsKey("k-4"));
        }
    }

    private static void compaction(Env env, CompressionType compression) throws Exception {
        String topic = env.topic("compacted");
        Producer<byte[]> producer = env.batching(topic).compressionType(compression).create();
        for (int i = 0; i < 30; i++) {
            producer.newMessage().key("k-" + i % 10).value(bytes("v-" + i)).sendAsync();
        }
        producer.flush();
        producer.newMessage().key("k-9").value(null).sendAsync();
        producer.newMessage().value(bytes("without a key")).sendAsync();
        producer.flush();
        env.compact(topic);
        List<String> last = new ArrayList<>();
        for (int key = 0; key < 9; key++) {
            last.add("v-" + (20 + key));
        }
        try (Reader<byte[]> reader = env.client.newReader().topic(topic).startMessageId(MessageId.earliest).readCompacted(true).create()) {
            List<String> seen = new ArrayList<>();
            while (reader.hasMessageAvailable()) {
                seen.add(new String(reader.readNext(15, TimeUnit.SECONDS).getData()));
            }
            expectEqual(seen, last, "last values");
            producer.newMessage().key("k-0").value(bytes("later")).sendAsync();
            producer.flush();
            expectEqual(new String(reader.readNext(15, TimeUnit.SECONDS).getData()), "later", "what comes after the compaction");
            reader.seek(MessageId.earliest);
            expectEqual(new String(reader.readNext(15, TimeUnit.SECONDS).getData()), "v-20", "after a seek");
        }
        Consumer<byte[]> consumer = env.consumer(topic, "s").readCompacted(true)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        List<String> all = new ArrayList<>(last);
        all.add("later");
        expectEqual(receiveAck(consumer, 10), all, "a subscription");
        try (TableView<byte[]> view = env.client.newTableView(Schema.BYTES).topic(topic).create()) {
            expectEqual(view.size(), 9, "keys of a table view");
            expectEqual(new String(view.get("k-0")), "later", "last value of a key");
            expectEqual(new String(view.get("k-5")), "v-25", "value of a key that was compacted");
        }
    }

    private static void exclusive(Env env) throws Exception {
        String topic = env.topic("exclusive-producer");
        Producer<byte[]> first = env.producer(topic).accessMode(ProducerAccessMode.Exclusive).create();
        expectError(PulsarClientException.ProducerFencedException.class, "a second exclusive producer",
                () -> env.producer(topic).accessMode(ProducerAccessMode.Exclusive).create());
        expectError(PulsarClientException.ProducerBusyException.class, "a shared producer beside an exclusive one",
                () -> env.producer(topic).create());
        first.send(bytes("still mine"));
        first.close();
        env.producer(topic).accessMode(ProducerAccessMode.Exclusive).create().send(bytes("mine now"));
    }

    private static void waitForExclusive(Env env) throws Exception {
        String topic = env.topic("waiting-producer");
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        Producer<byte[]> first = env.producer(topic).accessMode(ProducerAccessMode.Exclusive).create();
        CompletableFuture<Producer<byte[]>> waiting = env.producer(topic).accessMode(ProducerAccessMode.WaitForExclusive).createAsync();
        first.send(bytes("first"));
        try {
            waiting.get(500, TimeUnit.MILLISECONDS);
            throw new AssertionError("the waiting producer did not wait");
        } catch (java.util.concurrent.TimeoutException expected) {
            // it waits
        }
        first.close();
        waiting.get(15, TimeUnit.SECONDS).send(bytes("second"));
        expectEqual(receiveAck(consumer, 2), List.of("first", "second"), "contents");
    }

    private static void fencing(Env env) throws Exception {
        String topic = env.topic("fencing-producer");
        Producer<byte[]> first = env.producer(topic).accessMode(ProducerAccessMode.Exclusive).create();
        first.send(bytes("first"));
        Producer<byte[]> second = env.producer(topic).accessMode(ProducerAccessMode.ExclusiveWithFencing).create();
        second.send(bytes("second"));
        AtomicReference<MessageId> late = new AtomicReference<>();
        expectError(PulsarClientException.class, "send of a fenced producer", () -> {
            late.set(first.send(bytes("too late")));
            return null;
        });
        second.send(bytes("third"));
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        expectEqual(receiveAck(consumer, 3), List.of("first", "second", "third"), "contents of the topic");
    }

    private static void deduplication(Env env) throws Exception {
        String topic = env.topic("deduplication");
        env.deduplicate(topic);
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscribe();
        Producer<byte[]> first = env.producer(topic).producerName("one").initialSequenceId(9).create();
        expectEqual(first.getLastSequenceId(), 9L, "last sequence id before the first message");
        for (int number = 10; number < 15; number++) {
            first.newMessage().value(bytes("" + number)).sequenceId(number).send();
        }
        for (long number : new long[] {12, 14}) {
            first.newMessage().value(bytes("again")).sequenceId(number).send();
        }
        first.close();
        Producer<byte[]> again = env.producer(topic).producerName("one").create();
        expectEqual(again.getLastSequenceId(), 14L, "last sequence id of a producer that came again");
        again.newMessage().value(bytes("again")).sequenceId(13).send();
        again.send(bytes("15"));
        expectEqual(again.getLastSequenceId(), 15L, "last sequence id");
        for (int number = 10; number < 16; number++) {
            expectEqual(text(receive(consumer)), "" + number, "content");
        }
    }

    private static void nameConflict(Env env) throws Exception {
        String topic = env.topic("producer-name");
        Producer<byte[]> first = env.producer(topic).producerName("one").create();
        expectEqual(first.getProducerName(), "one", "producer name");
        expectError(PulsarClientException.ProducerBusyException.class, "the same producer name",
                () -> env.producer(topic).producerName("one").create());
        first.close();
        env.producer(topic).producerName("one").create();
        String a = env.producer(topic).create().getProducerName();
        String b = env.producer(topic).create().getProducerName();
        expect(!a.isEmpty() && !a.equals(b), "names given by the broker: " + a + ", " + b);
    }
}
