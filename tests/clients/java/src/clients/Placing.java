package clients;

import static clients.Env.*;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** Readers, seeking and the last message id: where in the topic to begin. */
final class Placing {
    static void register(Suite suite) {
        suite.add("reader", env -> reader(env, false));
        suite.add("reader-batched", env -> reader(env, true));
        suite.add("reader-latest-inclusive", Placing::latestInclusive);
        suite.add("reader-seek", Placing::readerSeek);
        suite.add("reader-rollback", Placing::readerRollback);
        suite.add("seek-message-id", Placing::seek);
        suite.add("seek-message-id-batched", Placing::seekInBatch);
        suite.add("seek-time", Placing::seekTime);
        suite.add("last-message-id", Placing::lastMessageId);
    }

    private static List<String> readAll(Reader<byte[]> reader) throws Exception {
        List<String> contents = new ArrayList<>();
        while (reader.hasMessageAvailable()) {
            contents.add(next(reader));
        }
        return contents;
    }

    private static String next(Reader<byte[]> reader) throws Exception {
        Message<byte[]> message = reader.readNext(RECEIVE_SECONDS, TimeUnit.SECONDS);
        expect(message != null, "the reader got no message within " + RECEIVE_SECONDS + " s");
        return text(message);
    }

    private static void reader(Env env, boolean batching) throws Exception {
        String topic = env.topic("reader");
        Producer<byte[]> producer = (batching ? env.batching(topic).batchingMaxMessages(10) : env.producer(topic)).create();
        List<MessageId> ids = sendAll(producer, numbered(30));
        Reader<byte[]> earliest = env.client.newReader().topic(topic).startMessageId(MessageId.earliest).create();
        expectEqual(readAll(earliest), numbered(30), "from earliest");
        Reader<byte[]> latest = env.client.newReader().topic(topic).startMessageId(MessageId.latest).create();
        expectEqual(latest.hasMessageAvailable(), false, "something available at latest");
        Reader<byte[]> exclusive = env.client.newReader().topic(topic).startMessageId(ids.get(13)).create();
        expectEqual(readAll(exclusive), numbered(30).subList(14, 30), "after a message id");
        Reader<byte[]> inclusive =
                env.client.newReader().topic(topic).startMessageId(ids.get(13)).startMessageIdInclusive().create();
        expectEqual(readAll(inclusive), numbered(30).subList(13, 30), "from a message id on");
        MessageId copied = MessageId.fromByteArray(ids.get(13).toByteArray());
        Reader<byte[]> again = env.client.newReader().topic(topic).startMessageId(copied).create();
        expectEqual(readAll(again), numbered(30).subList(14, 30), "after a message id that was serialized");
        sendAll(producer, List.of("next"));
        for (Reader<byte[]> reader : List.of(earliest, latest, exclusive, inclusive)) {
            expectEqual(next(reader), "next", "a new message");
            expectEqual(reader.hasMessageAvailable(), false, "more available at the end");
        }
    }

    private static void latestInclusive(Env env) throws Exception {
        String topic = env.topic("reader-latest");
        sendAll(env.producer(topic).create(), numbered(3));
        Reader<byte[]> reader =
                env.client.newReader().topic(topic).startMessageId(MessageId.latest).startMessageIdInclusive().create();
        expectEqual(readAll(reader), List.of("m-2"), "from the last message on");
    }

    private static void readerSeek(Env env) throws Exception {
        String topic = env.topic("reader-seek");
        List<MessageId> ids = sendAll(env.producer(topic).create(), numbered(20));
        Reader<byte[]> reader = env.client.newReader().topic(topic).startMessageId(MessageId.earliest).create();
        expectEqual(readAll(reader), numbered(20), "from earliest");
        reader.seek(ids.get(4));
        expectEqual(readAll(reader), numbered(20).subList(5, 20), "after seeking to a message id");
        reader.seek(MessageId.earliest);
        expectEqual(readAll(reader), numbered(20), "after seeking to earliest");
    }

    private static void readerRollback(Env env) throws Exception {
        String topic = env.topic("reader-rollback");
        sendAll(env.producer(topic).create(), numbered(5));
        Reader<byte[]> reader = env.client.newReader().topic(topic).startMessageFromRollbackDuration(1, TimeUnit.HOURS).create();
        expectEqual(readAll(reader), numbered(5), "from an hour ago");
    }

    /** Each ack is confirmed before the next call: a stock Pulsar may apply one that is under way after a seek, and undo it. */
    private static ConsumerBuilder<byte[]> confirmed(Env env, String topic, String subscription) {
        return env.consumer(topic, subscription).isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.SECONDS);
    }

    private static void seek(Env env) throws Exception {
        String topic = env.topic("seek");
        Consumer<byte[]> consumer = confirmed(env, topic, "s").subscribe();
        Consumer<byte[]> inclusive = confirmed(env, topic, "t").startMessageIdInclusive().subscribe();
        Producer<byte[]> producer = env.producer(topic).create();
        List<MessageId> ids = sendAll(producer, numbered(20));
        expectEqual(receiveAck(consumer, 20), numbered(20), "contents at first");
        expectEqual(receiveAck(inclusive, 20), numbered(20), "contents at first");
        consumer.seek(ids.get(7));
        expectEqual(receiveAck(consumer, 12), numbered(20).subList(8, 20), "after seeking back, exclusive");
        inclusive.seek(ids.get(7));
        expectEqual(receiveAck(inclusive, 13), numbered(20).subList(7, 20), "after seeking back, inclusive");
        consumer.seek(MessageId.earliest);
        expectEqual(receiveAck(consumer, 20), numbered(20), "after seeking to earliest");
        consumer.seek(MessageId.earliest);
        receive(consumer);
        consumer.seek(MessageId.latest);
        sendAll(producer, List.of("next"));
        expectEqual(receiveAck(consumer, 1), List.of("next"), "after seeking to latest");
    }

    private static void seekInBatch(Env env) throws Exception {
        String topic = env.topic("seek-batched");
        Consumer<byte[]> consumer = confirmed(env, topic, "s").subscribe();
        List<MessageId> ids = sendAll(env.batching(topic).create(), numbered(20));
        expectEqual(receiveAck(consumer, 20), numbered(20), "contents at first");
        consumer.seek(ids.get(7));
        expectEqual(receiveAck(consumer, 12), numbered(20).subList(8, 20), "after seeking into a batch");
    }

    private static void seekTime(Env env) throws Exception {
        String topic = env.topic("seek-time");
        Consumer<byte[]> consumer = confirmed(env, topic, "s").subscribe();
        Producer<byte[]> producer = env.producer(topic).create();
        sendAll(producer, numbered("old", 10));
        List<Message<byte[]>> old = receive(consumer, 10);
        long last = old.get(9).getPublishTime();
        waitUntil("the clock moves on", () -> System.currentTimeMillis() > last + 2);
        sendAll(producer, numbered("new", 10));
        List<Message<byte[]>> fresh = receive(consumer, 10);
        expect(fresh.get(0).getPublishTime() > last, "publish times do not grow");
        consumer.seek(fresh.get(0).getPublishTime());
        expectEqual(receiveAck(consumer, 10), numbered("new", 10), "after seeking by time");
        consumer.seek(old.get(0).getPublishTime() - 60_000);
        expectEqual(receiveAck(consumer, 20), joined(numbered("old", 10), numbered("new", 10)), "after seeking to before it all");
    }

    private static void lastMessageId(Env env) throws Exception {
        String topic = env.topic("last-id");
        Consumer<byte[]> consumer =
                env.consumer(topic, "s").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        expectEqual(((MessageIdAdv) consumer.getLastMessageIds().get(0)).getEntryId(), -1L, "entry id in an empty topic");
        List<MessageId> ids = sendAll(env.producer(topic).create(), numbered(5));
        expectEqual(place(consumer.getLastMessageIds().get(0)), place(ids.get(4)), "last message id");
        ids = sendAll(env.batching(topic).create(), numbered(7));
        expectEqual(place(consumer.getLastMessageIds().get(0)), place(ids.get(6)), "last message id of a batch");
        expectEqual(((MessageIdAdv) ids.get(6)).getBatchIndex(), 6, "batch index of the last of seven");
    }

    private static List<Long> place(MessageId id) {
        MessageIdAdv parts = (MessageIdAdv) id;
        return List.of(parts.getLedgerId(), parts.getEntryId(), (long) parts.getBatchIndex());
    }
}
