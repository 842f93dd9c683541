package clients;

import static clients.Env.*;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionType;

/** Cumulative, batch-index and confirmed acknowledgement, and what is remembered of them. */
final class Acknowledge {
    static void register(Suite suite) {
        suite.add("cumulative-ack", env -> cumulative(env, false));
        suite.add("cumulative-ack-with-receipt", env -> cumulative(env, true));
        suite.add("individual-ack-with-holes", env -> holes(env, false));
        suite.add("individual-ack-with-receipt", env -> holes(env, true));
        suite.add("batch-index-ack", Acknowledge::batchIndex);
        suite.add("batch-index-ack-cumulative", Acknowledge::batchIndexCumulative);
        suite.add("ack-many", Acknowledge::ackMany);
    }

    private static void cumulative(Env env, boolean receipt) throws Exception {
        String topic = env.topic("cumulative");
        Consumer<byte[]> consumer = env.consumer(topic, "s").isAckReceiptEnabled(receipt).subscribe();
        sendAll(env.producer(topic).create(), numbered(20));
        List<Message<byte[]>> messages = receive(consumer, 20);
        consumer.acknowledgeCumulativeAsync(messages.get(11)).get(15, TimeUnit.SECONDS);
        consumer.close();
        Consumer<byte[]> again = env.consumer(topic, "s").subscribe();
        expectEqual(receiveAck(again, 8), numbered(20).subList(12, 20), "after joining again");
    }

    private static void holes(Env env, boolean receipt) throws Exception {
        String topic = env.topic("holes");
        Consumer<byte[]> consumer =
                env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).isAckReceiptEnabled(receipt).subscribe();
        Producer<byte[]> producer = env.producer(topic).create();
        sendAll(producer, numbered(20));
        List<String> left = new ArrayList<>();
        List<CompletableFuture<Void>> receipts = new ArrayList<>();
        List<Message<byte[]>> messages = receive(consumer, 20);
        for (int i = 0; i < 20; i++) {
            if (i % 3 == 0) {
                left.add(text(messages.get(i)));
            } else {
                receipts.add(consumer.acknowledgeAsync(messages.get(i)));
            }
        }
        for (CompletableFuture<Void> done : receipts) {
            done.get(15, TimeUnit.SECONDS);
        }
        consumer.close();
        Consumer<byte[]> again = env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe();
        expectEqual(sorted(receiveAck(again, left.size())), sorted(left), "after joining again");
        sendAll(producer, List.of("sentinel"));
        expectEqual(receiveAck(again, 1), List.of("sentinel"), "nothing else comes again");
    }

    private static Producer<byte[]> oneBatch(Env env, String topic) throws Exception {
        Producer<byte[]> producer = env.batching(topic).create();
        List<MessageId> ids = sendAll(producer, numbered(20));
        long entries = ids.stream().map(id -> ((MessageIdAdv) id).getEntryId()).distinct().count();
        expectEqual(entries, 1L, "entries of one batch");
        expectEqual(((MessageIdAdv) ids.get(19)).getBatchIndex(), 19, "batch index of the last");
        return producer;
    }

    private static void batchIndex(Env env) throws Exception {
        String topic = env.topic("batch-index");
        Consumer<byte[]> consumer =
                env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).enableBatchIndexAcknowledgment(true).subscribe();
        Producer<byte[]> producer = oneBatch(env, topic);
        List<Message<byte[]>> messages = receive(consumer, 20);
        List<String> left = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            if (i % 2 == 0) {
                left.add(text(messages.get(i)));
            } else {
                consumer.acknowledge(messages.get(i));
            }
        }
        consumer.close();
        Consumer<byte[]> again =
                env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).enableBatchIndexAcknowledgment(true).subscribe();
        expectEqual(receiveAck(again, 10), left, "the unacknowledged half of the batch");
        sendAll(producer, List.of("sentinel"));
        expectEqual(receiveAck(again, 1), List.of("sentinel"), "nothing else comes again");
    }

    private static void batchIndexCumulative(Env env) throws Exception {
        String topic = env.topic("batch-index-cumulative");
        Consumer<byte[]> consumer = env.consumer(topic, "s").enableBatchIndexAcknowledgment(true).subscribe();
        oneBatch(env, topic);
        List<Message<byte[]>> messages = receive(consumer, 20);
        consumer.acknowledgeCumulative(messages.get(11));
        consumer.close();
        Consumer<byte[]> again = env.consumer(topic, "s").enableBatchIndexAcknowledgment(true).subscribe();
        expectEqual(receiveAck(again, 8), numbered(20).subList(12, 20), "the rest of the batch");
    }

    private static void ackMany(Env env) throws Exception {
        String topic = env.topic("ack-many");
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).isAckReceiptEnabled(true)
                .acknowledgmentGroupTime(0, TimeUnit.SECONDS).subscribe();
        sendAll(env.producer(topic).create(), numbered(100));
        List<MessageId> ids = receive(consumer, 100).stream().map(Message::getMessageId).toList();
        consumer.acknowledgeAsync(ids.subList(0, 95)).get(15, TimeUnit.SECONDS);
        consumer.close();
        Consumer<byte[]> again = env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe();
        expectEqual(receiveAck(again, 5), numbered(100).subList(95, 100), "after joining again");
    }
}
