package clients;

import static clients.Env.*;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Transactions: what is produced and acknowledged in one counts when it is committed, and not at all when it is aborted. */
final class Transactions {
    static void register(Suite suite) {
        suite.add("transaction-commit", env -> endToEnd(true, false, SubscriptionType.Exclusive));
        suite.add("transaction-abort", env -> endToEnd(false, false, SubscriptionType.Exclusive));
        suite.add("transaction-commit-batched", env -> endToEnd(true, true, SubscriptionType.Shared));
        suite.add("transaction-abort-batched", env -> endToEnd(false, true, SubscriptionType.Shared));
        suite.add("transaction-conflict", env -> conflict());
        suite.add("transaction-timeout", env -> timeout());
    }

    private static Transaction begin(Env env, int seconds) throws Exception {
        return env.client.newTransaction().withTransactionTimeout(seconds, TimeUnit.SECONDS).build().get(15, TimeUnit.SECONDS);
    }

    private static void endToEnd(boolean commit, boolean batched, SubscriptionType type) throws Exception {
        try (Env env = Env.transactional()) {
            String in = env.topic("txn-in");
            String out = env.topic("txn-out");
            Consumer<byte[]> source = env.consumer(in, "s").subscriptionType(type).subscribe();
            Consumer<byte[]> sink = env.consumer(out, "s").subscribe();
            Producer<byte[]> input = env.producer(in).create();
            sendAll(input, numbered(5));
            Producer<byte[]> output = (batched ? env.batching(out) : env.producer(out)).sendTimeout(0, TimeUnit.SECONDS).create();
            Transaction txn = begin(env, 60);
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (Message<byte[]> message : receive(source, 5)) {
                sent.add(output.newMessage(txn).value(message.getValue()).sendAsync());
                source.acknowledgeAsync(message.getMessageId(), txn).get(15, TimeUnit.SECONDS);
            }
            output.flush();
            for (CompletableFuture<MessageId> receipt : sent) {
                receipt.get(15, TimeUnit.SECONDS);
            }
            sendAll(env.producer(out).create(), List.of("plain"));
            expect(sink.receive(300, TimeUnit.MILLISECONDS) == null, "a message of an open transaction, or one that follows it, came");
            List<String> expected = new ArrayList<>(commit ? numbered(5) : List.of());
            expected.add("plain");
            (commit ? txn.commit() : txn.abort()).get(15, TimeUnit.SECONDS);
            expectEqual(receiveAck(sink, expected.size()), expected, "after the end");
            source.close();
            source = env.consumer(in, "s").subscriptionType(type).subscribe();
            sendAll(input, List.of("sentinel"));
            List<String> left = new ArrayList<>(commit ? List.of() : numbered(5));
            left.add("sentinel");
            expectEqual(sorted(receiveAck(source, left.size())), sorted(left), "what comes again");
        }
    }

    private static void conflict() throws Exception {
        try (Env env = Env.transactional()) {
            String topic = env.topic("txn-conflict");
            Consumer<byte[]> consumer = env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe();
            sendAll(env.producer(topic).create(), numbered(1));
            Message<byte[]> message = receive(consumer);
            Transaction one = begin(env, 60);
            Transaction two = begin(env, 60);
            consumer.acknowledgeAsync(message.getMessageId(), one).get(15, TimeUnit.SECONDS);
            expectError(PulsarClientException.TransactionConflictException.class, "the same message in another transaction",
                    () -> consumer.acknowledgeAsync(message.getMessageId(), two).get(15, TimeUnit.SECONDS));
            one.commit().get(15, TimeUnit.SECONDS);
        }
    }

    private static void timeout() throws Exception {
        try (Env env = Env.transactional()) {
            String topic = env.topic("txn-timeout");
            Consumer<byte[]> consumer = env.consumer(topic, "s").subscribe();
            Producer<byte[]> producer = env.producer(topic).sendTimeout(0, TimeUnit.SECONDS).create();
            Transaction txn = begin(env, 1);
            producer.newMessage(txn).value("gone".getBytes()).send();
            producer.newMessage().value("stays".getBytes()).send();
            expectEqual(receiveAck(consumer, 1), List.of("stays"), "after its time");
        }
    }
}
