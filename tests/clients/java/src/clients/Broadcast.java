package clients;

import static clients.Env.*;

import java.util.List;
import java.util.Map;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionType;

/** Broadcast subscriptions: one name, every consumer gets everything. An extension of Pharos. */
final class Broadcast {
    private static final String KEY = "pharos.subscription";

    static void register(Suite suite) {
        suite.addExtension("broadcast-subscription-property",
                env -> all(env, SubscriptionType.Exclusive, b -> b.subscriptionProperties(Map.of(KEY, "broadcast")), false));
        suite.addExtension("broadcast-consumer-property",
                env -> all(env, SubscriptionType.Shared, b -> b.property(KEY, "broadcast"), false));
        suite.addExtension("broadcast-batched",
                env -> all(env, SubscriptionType.Failover, b -> b.subscriptionProperties(Map.of(KEY, "broadcast")), true));
        suite.addExtension("broadcast-cumulative", Broadcast::cumulative);
        suite.addExtension("broadcast-refused-on-another-kind", Broadcast::refused);
    }

    private interface Ask {
        ConsumerBuilder<byte[]> on(ConsumerBuilder<byte[]> builder);
    }

    private static Consumer<byte[]> join(Env env, String topic, String who, SubscriptionType type, Ask ask) throws Exception {
        return ask.on(env.consumer(topic, "everyone").consumerName(who).subscriptionType(type)).subscribe();
    }

    private static void all(Env env, SubscriptionType type, Ask ask, boolean batching) throws Exception {
        String topic = env.topic("broadcast");
        Consumer<byte[]> a = join(env, topic, "a", type, ask);
        Consumer<byte[]> b = join(env, topic, "b", type, ask);
        Consumer<byte[]> c = join(env, topic, "c", type, ask);
        Producer<byte[]> producer = (batching ? env.batching(topic) : env.producer(topic)).create();
        sendAll(producer, numbered(100));
        for (Consumer<byte[]> consumer : List.of(a, b, c)) {
            expectEqual(receiveAck(consumer, 100), numbered(100), "contents at " + consumer.getConsumerName());
        }
        c.close();
        sendAll(producer, numbered("missed", 30));
        for (Consumer<byte[]> consumer : List.of(a, b)) {
            expectEqual(receiveAck(consumer, 30), numbered("missed", 30), "contents at " + consumer.getConsumerName() + " without c");
        }
        c = join(env, topic, "c", type, ask);
        // The sentinel shows that nothing came twice and nothing is left over.
        sendAll(producer, List.of("sentinel"));
        expectEqual(receiveAck(c, 31), joined(numbered("missed", 30), List.of("sentinel")), "contents at c after joining again");
        for (Consumer<byte[]> consumer : List.of(a, b)) {
            expectEqual(receiveAck(consumer, 1), List.of("sentinel"), "contents at " + consumer.getConsumerName() + " at the end");
        }
    }

    private static void cumulative(Env env) throws Exception {
        String topic = env.topic("broadcast-cumulative");
        Ask ask = builder -> builder.subscriptionProperties(Map.of(KEY, "broadcast"));
        Consumer<byte[]> a = join(env, topic, "a", SubscriptionType.Exclusive, ask);
        Consumer<byte[]> b = join(env, topic, "b", SubscriptionType.Exclusive, ask);
        Producer<byte[]> producer = env.producer(topic).create();
        sendAll(producer, numbered(20));
        List<Message<byte[]>> messages = receive(a, 20);
        a.acknowledgeCumulative(messages.get(11));
        expectEqual(receiveAck(b, 20), numbered(20), "contents at b");
        a.close();
        sendAll(producer, List.of("sentinel"));
        a = join(env, topic, "a", SubscriptionType.Exclusive, ask);
        expectEqual(receiveAck(a, 9), joined(numbered(20).subList(12, 20), List.of("sentinel")), "a resumes after what it acknowledged");
        expectEqual(receiveAck(b, 1), List.of("sentinel"), "b got nothing twice");
    }

    private static void refused(Env env) throws Exception {
        String topic = env.topic("broadcast-refused");
        env.consumer(topic, "everyone").subscriptionType(SubscriptionType.Shared).subscribe();
        expectError(PulsarClientException.ConsumerBusyException.class, "broadcast on a shared subscription",
                () -> join(env, topic, "a", SubscriptionType.Shared, b -> b.subscriptionProperties(Map.of(KEY, "broadcast"))));
    }
}
