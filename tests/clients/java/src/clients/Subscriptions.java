package clients;

import static clients.Env.*;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionMode;
import org.apache.pulsar.client.api.SubscriptionType;

/** The four ways of sharing a subscription. */
final class Subscriptions {
    static void register(Suite suite) {
        suite.add("exclusive", Subscriptions::exclusive);
        suite.add("shared", env -> shared(env, env.producer(env.topic("shared"))));
        suite.add("shared-batched", env -> shared(env, env.batching(env.topic("shared")).batchingMaxMessages(10)));
        suite.add("shared-unacked-go-to-the-other", Subscriptions::sharedLeave);
        suite.add("shared-priority", Subscriptions::priority);
        suite.add("failover", Subscriptions::failover);
        suite.add("key-shared", env -> keyShared(env, env.producer(env.topic("key-shared"))));
        suite.add("key-shared-batched",
                env -> keyShared(env, env.batching(env.topic("key-shared")).batcherBuilder(BatcherBuilder.KEY_BASED)));
        suite.add("key-shared-sticky", Subscriptions::sticky);
        suite.add("key-shared-consumer-leaves", Subscriptions::keySharedLeave);
        suite.add("initial-position", Subscriptions::initialPosition);
        suite.add("non-durable", Subscriptions::nonDurable);
        suite.add("unsubscribe", Subscriptions::unsubscribe);
    }

    private static List<Consumer<byte[]>> consumers(Env env, String topic, int count, SubscriptionType type, int queue) throws Exception {
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            consumers.add(env.consumer(topic, "s").subscriptionType(type).consumerName("c" + i).receiverQueueSize(queue).subscribe());
        }
        return consumers;
    }

    private static List<String> texts(List<Got> got) {
        return got.stream().map(g -> text(g.message())).toList();
    }

    private static void exclusive(Env env) throws Exception {
        String topic = env.topic("exclusive");
        Consumer<byte[]> first = env.consumer(topic, "s").subscribe();
        expectError(PulsarClientException.ConsumerBusyException.class, "a second exclusive consumer",
                () -> env.consumer(topic, "s").subscribe());
        expectError(PulsarClientException.ConsumerBusyException.class, "another type",
                () -> env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe());
        Consumer<byte[]> other = env.consumer(topic, "t").subscribe();
        Producer<byte[]> producer = env.batching(topic).create();
        sendAll(producer, numbered(50));
        expectEqual(receiveAck(first, 50), numbered(50), "contents");
        expectEqual(receiveAck(other, 50), numbered(50), "contents on another subscription");
        first.close();
        Consumer<byte[]> again = env.consumer(topic, "s").subscribe();
        sendAll(producer, List.of("next"));
        expectEqual(receiveAck(again, 1), List.of("next"), "after joining again");
    }

    private static void shared(Env env, ProducerBuilder<byte[]> builder) throws Exception {
        Producer<byte[]> producer = builder.create();
        List<Consumer<byte[]>> consumers = consumers(env, producer.getTopic(), 3, SubscriptionType.Shared, 10);
        sendAll(producer, numbered(300));
        List<Got> got = collect(consumers, 300, true);
        expectEqual(sorted(texts(got)), sorted(numbered(300)), "all messages, each once");
        for (int i = 0; i < 3; i++) {
            int index = i;
            expect(got.stream().anyMatch(g -> g.consumer() == index), "consumer " + i + " got nothing");
        }
    }

    private static void sharedLeave(Env env) throws Exception {
        String topic = env.topic("shared-leave");
        Consumer<byte[]> first = env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe();
        sendAll(env.producer(topic).create(), numbered(20));
        receive(first, 10);
        Consumer<byte[]> second = env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe();
        first.close();
        expectEqual(sorted(receiveAck(second, 20)), sorted(numbered(20)), "unacknowledged messages");
    }

    private static void priority(Env env) throws Exception {
        String topic = env.topic("shared-priority");
        Consumer<byte[]> low = env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).priorityLevel(1).subscribe();
        Consumer<byte[]> high = env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).priorityLevel(0).subscribe();
        sendAll(env.producer(topic).create(), numbered(50));
        List<Got> got = collect(List.of(low, high), 50, true);
        expect(got.stream().allMatch(g -> g.consumer() == 1), "a consumer of lower priority got messages while the other had permits");
    }

    private static void failover(Env env) throws Exception {
        String topic = env.topic("failover");
        List<Consumer<byte[]>> consumers = consumers(env, topic, 2, SubscriptionType.Failover, 1000);
        Producer<byte[]> producer = env.producer(topic).create();
        sendAll(producer, numbered(30));
        List<Got> got = collect(consumers, 30, false);
        int active = got.get(29).consumer();
        expect(got.stream().allMatch(g -> g.consumer() == active), "more than one consumer is active");
        expectEqual(texts(got), numbered(30), "contents at the active consumer");
        for (Got g : got.subList(0, 10)) {
            consumers.get(active).acknowledge(g.message());
        }
        consumers.get(active).close();
        Consumer<byte[]> standby = consumers.get(1 - active);
        expectEqual(receiveAck(standby, 20), numbered(30).subList(10, 30), "after the takeover");
        sendAll(producer, List.of("next"));
        expectEqual(receiveAck(standby, 1), List.of("next"), "new messages after the takeover");
    }

    private static void sendKeyed(Producer<byte[]> producer, int from, int to) throws Exception {
        for (int index = from; index < to; index++) {
            for (int key = 0; key < 40; key++) {
                producer.newMessage().key("key-" + key).value(bytes("key-" + key + " " + index)).sendAsync();
            }
        }
        producer.flush();
    }

    /** Checks that each key has one consumer and is in order; returns the consumer of each key. */
    private static Map<String, Integer> owners(List<Got> got, int from, int to) {
        Map<String, Integer> owners = new HashMap<>();
        Map<String, List<String>> seen = new HashMap<>();
        for (Got g : got) {
            String key = g.message().getKey();
            owners.putIfAbsent(key, g.consumer());
            expectEqual(g.consumer(), owners.get(key), "consumer of " + key);
            seen.computeIfAbsent(key, k -> new ArrayList<>()).add(text(g.message()));
        }
        for (int key = 0; key < 40; key++) {
            String name = "key-" + key;
            expectEqual(seen.get(name), IntStream.range(from, to).mapToObj(i -> name + " " + i).toList(), "order of " + name);
        }
        return owners;
    }

    private static void keyShared(Env env, ProducerBuilder<byte[]> builder) throws Exception {
        Producer<byte[]> producer = builder.create();
        List<Consumer<byte[]>> consumers = consumers(env, producer.getTopic(), 3, SubscriptionType.Key_Shared, 50);
        sendKeyed(producer, 0, 10);
        Map<String, Integer> owners = owners(collect(consumers, 400, true), 0, 10);
        expectEqual(new HashSet<>(owners.values()).size(), 3, "consumers with at least one key");
    }

    private static void sticky(Env env) throws Exception {
        String topic = env.topic("key-shared-sticky");
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (Range range : List.of(Range.of(0, 9999), Range.of(10000, 65535))) {
            consumers.add(env.consumer(topic, "s").subscriptionType(SubscriptionType.Key_Shared)
                    .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(range)).subscribe());
        }
        expectError(PulsarClientException.ConsumerAssignException.class, "a range that is taken", () -> env.consumer(topic, "s")
                .subscriptionType(SubscriptionType.Key_Shared)
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(5000, 6000))).subscribe());
        Producer<byte[]> producer = env.producer(topic).create();
        sendKeyed(producer, 0, 5);
        Map<String, Integer> owners = owners(collect(consumers, 200, true), 0, 5);
        owners.forEach((key, owner) -> {
            // The client's own hash of a key, which is what a broker must use too.
            int hash = org.apache.pulsar.common.util.Murmur3_32Hash.getInstance().makeHash(bytes(key)) % 65536;
            expectEqual(owner, hash < 10000 ? 0 : 1, "consumer of " + key + " with hash " + hash);
        });
    }

    private static void keySharedLeave(Env env) throws Exception {
        String topic = env.topic("key-shared-leave");
        List<Consumer<byte[]>> consumers = consumers(env, topic, 2, SubscriptionType.Key_Shared, 1000);
        Producer<byte[]> producer = env.producer(topic).create();
        sendKeyed(producer, 0, 5);
        List<Got> got = collect(consumers, 200, false);
        owners(got, 0, 5);
        for (Got g : got) {
            if (g.consumer() == 1) {
                consumers.get(1).acknowledge(g.message());
            }
        }
        long left = got.stream().filter(g -> g.consumer() == 0).count();
        consumers.get(0).close();
        List<String> expected = texts(got.stream().filter(g -> g.consumer() == 0).toList());
        expectEqual(sorted(receiveAck(consumers.get(1), (int) left)), sorted(expected), "what the other had not acknowledged");
        sendKeyed(producer, 5, 10);
        owners(collect(consumers.subList(1, 2), 200, true), 5, 10);
    }

    private static void initialPosition(Env env) throws Exception {
        String topic = env.topic("initial");
        Producer<byte[]> producer = env.producer(topic).create();
        sendAll(producer, numbered(5));
        Consumer<byte[]> early =
                env.consumer(topic, "early").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        Consumer<byte[]> late = env.consumer(topic, "late").subscribe();
        sendAll(producer, List.of("last"));
        expectEqual(receiveAck(early, 6), joined(numbered(5), List.of("last")), "from earliest");
        expectEqual(receiveAck(late, 1), List.of("last"), "from latest");
    }

    private static void nonDurable(Env env) throws Exception {
        String topic = env.topic("non-durable");
        Producer<byte[]> producer = env.producer(topic).create();
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscriptionMode(SubscriptionMode.NonDurable).subscribe();
        sendAll(producer, numbered(5));
        List<Message<byte[]>> messages = receive(consumer, 5);
        consumer.acknowledge(messages.get(0));
        consumer.close();
        // Nothing is kept of it: the next one of the name starts at the end.
        Consumer<byte[]> again = env.consumer(topic, "s").subscriptionMode(SubscriptionMode.NonDurable).subscribe();
        sendAll(producer, List.of("next"));
        expectEqual(receiveAck(again, 1), List.of("next"), "after joining again");
    }

    private static void unsubscribe(Env env) throws Exception {
        String topic = env.topic("unsubscribe");
        Producer<byte[]> producer = env.producer(topic).create();
        Consumer<byte[]> consumer =
                env.consumer(topic, "s").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        Consumer<byte[]> keeper =
                env.consumer(topic, "keeper").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        sendAll(producer, numbered(5));
        expectEqual(receiveAck(consumer, 5), numbered(5), "contents");
        consumer.unsubscribe();
        // The place is forgotten: the same name starts anew, and what "keeper" holds is there again.
        Consumer<byte[]> again =
                env.consumer(topic, "s").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        expectEqual(receiveAck(again, 5), numbered(5), "contents after unsubscribe");
        expectEqual(receiveAck(keeper, 5), numbered(5), "contents of the other subscription");
    }
}
