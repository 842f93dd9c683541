package clients;

import static clients.Env.*;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Partitioned topics and subscriptions by pattern. */
final class Topics {
    static void register(Suite suite) {
        suite.add("partitioned", Topics::partitioned);
        suite.add("partitioned-by-key", Topics::byKey);
        suite.add("pattern", Topics::pattern);
        suite.add("multi-topics", Topics::multi);
    }

    private static void partitioned(Env env) throws Exception {
        String topic = env.topic("partitioned");
        env.createPartitioned(topic, 4);
        List<String> names = IntStream.range(0, 4).mapToObj(i -> topic + "-partition-" + i).toList();
        expectEqual(env.client.getPartitionsForTopic(topic, false).get(15, TimeUnit.SECONDS), names, "partitions");
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscribe();
        Producer<byte[]> producer = env.producer(topic).create();
        sendAll(producer, numbered(80));
        List<Message<byte[]>> messages = receive(consumer, 80);
        expectEqual(sorted(messages.stream().map(Env::text).toList()), sorted(numbered(80)), "all messages, each once");
        expectEqual(messages.stream().map(Message::getTopicName).distinct().sorted().toList(), names, "partitions used");
    }

    private static void byKey(Env env) throws Exception {
        String topic = env.topic("partitioned-key");
        env.createPartitioned(topic, 3);
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            consumers.add(env.consumer(topic, "s").subscriptionType(SubscriptionType.Failover).consumerName("c" + i).subscribe());
        }
        Producer<byte[]> producer = env.batching(topic).create();
        for (int i = 0; i < 10; i++) {
            for (int key = 0; key < 20; key++) {
                producer.newMessage().key("key-" + key).value(bytes(key + " " + i)).sendAsync();
            }
        }
        producer.flush();
        Map<String, List<String>> seen = new HashMap<>();
        for (Got g : collect(consumers, 200, true)) {
            String place = g.message().getKey() + "@" + g.message().getTopicName();
            seen.computeIfAbsent(place, k -> new ArrayList<>()).add(text(g.message()));
        }
        expectEqual(seen.size(), 20, "keys, each in one partition");
        seen.forEach((place, contents) -> {
            String key = place.substring(4, place.indexOf('@'));
            expectEqual(contents, IntStream.range(0, 10).mapToObj(i -> key + " " + i).toList(), "order of key-" + key);
        });
    }

    private static void pattern(Env env) throws Exception {
        String base = env.topic("pattern");
        Producer<byte[]> early = env.producer(base + "-early").create();
        Consumer<byte[]> consumer = env.client.newConsumer().topicsPattern(Pattern.compile(base + "-.*")).subscriptionName("s")
                .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        early.send(bytes("early"));
        expectEqual(receiveAck(consumer, 1), List.of("early"), "from the topic that was there");
        env.producer(base + "-late").create().send(bytes("late"));
        Message<byte[]> message = receive(consumer);
        expectEqual(text(message), "late", "from the topic that came later");
        expectEqual(message.getTopicName(), base + "-late", "its topic");
    }

    private static void multi(Env env) throws Exception {
        List<String> topics = IntStream.range(0, 3).mapToObj(i -> env.topic("multi-" + i)).toList();
        Consumer<byte[]> consumer = env.client.newConsumer().topics(topics).subscriptionName("s").subscribe();
        for (String topic : topics) {
            sendAll(env.producer(topic).create(), numbered(topic, 10));
        }
        List<Message<byte[]>> messages = receive(consumer, 30);
        for (String topic : topics) {
            List<String> of = messages.stream().filter(m -> m.getTopicName().equals(topic)).map(Env::text).toList();
            expectEqual(of, numbered(topic, 10), "contents of one topic");
        }
    }
}
