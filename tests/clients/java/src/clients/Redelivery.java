package clients;

import static clients.Env.*;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Negative acknowledgement, ack timeout, the dead letter topic and the retry letter topic. */
final class Redelivery {
    static void register(Suite suite) {
        suite.add("negative-ack", Redelivery::negative);
        suite.add("negative-ack-batched", Redelivery::negativeBatched);
        suite.add("negative-ack-exclusive", Redelivery::negativeExclusive);
        suite.add("redeliver-unacknowledged", Redelivery::redeliver);
        suite.add("ack-timeout", Redelivery::ackTimeout);
        suite.add("dead-letter", Redelivery::deadLetter);
        suite.add("retry-letter", Redelivery::retryLetter);
    }

    private static ConsumerBuilder<byte[]> quick(Env env, String topic) {
        return env.consumer(topic, "s").negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS);
    }

    private static void negative(Env env) throws Exception {
        String topic = env.topic("negative-ack");
        Consumer<byte[]> consumer = quick(env, topic).subscriptionType(SubscriptionType.Shared).subscribe();
        Producer<byte[]> producer = env.producer(topic).create();
        sendAll(producer, numbered(20));
        List<String> odd = new ArrayList<>();
        for (Message<byte[]> message : receive(consumer, 20)) {
            expectEqual(message.getRedeliveryCount(), 0, "redelivery count at first");
            if (Integer.parseInt(text(message).substring(2)) % 2 == 1) {
                odd.add(text(message));
                consumer.negativeAcknowledge(message);
            } else {
                consumer.acknowledge(message);
            }
        }
        for (int round = 1; round <= 2; round++) {
            List<Message<byte[]>> again = receive(consumer, 10);
            expectEqual(sorted(again.stream().map(Env::text).toList()), sorted(odd), "redelivered in round " + round);
            for (Message<byte[]> message : again) {
                expectEqual(message.getRedeliveryCount(), round, "redelivery count");
                if (round == 1) {
                    consumer.negativeAcknowledge(message);
                } else {
                    consumer.acknowledge(message);
                }
            }
        }
        sendAll(producer, List.of("sentinel"));
        expectEqual(receiveAck(consumer, 1), List.of("sentinel"), "after all are acknowledged");
    }

    private static void negativeBatched(Env env) throws Exception {
        String topic = env.topic("negative-ack-batched");
        Consumer<byte[]> consumer =
                quick(env, topic).subscriptionType(SubscriptionType.Shared).enableBatchIndexAcknowledgment(true).subscribe();
        sendAll(env.batching(topic).create(), numbered(20));
        List<Message<byte[]>> messages = receive(consumer, 20);
        for (int i = 0; i < 20; i++) {
            if (i % 2 == 1) {
                consumer.negativeAcknowledge(messages.get(i));
            } else {
                consumer.acknowledge(messages.get(i));
            }
        }
        List<String> odd = IntStream.range(0, 10).mapToObj(i -> "m-" + (2 * i + 1)).toList();
        expectEqual(sorted(receiveAck(consumer, 10)), sorted(odd), "redelivered");
    }

    private static void negativeExclusive(Env env) throws Exception {
        String topic = env.topic("negative-ack-exclusive");
        Consumer<byte[]> consumer = quick(env, topic).subscribe();
        sendAll(env.producer(topic).create(), numbered(5));
        List<Message<byte[]>> messages = receive(consumer, 5);
        consumer.acknowledge(messages.get(0));
        messages.subList(1, 5).forEach(consumer::negativeAcknowledge);
        expectEqual(receiveAck(consumer, 4), numbered(5).subList(1, 5), "redelivered, in order");
    }

    private static void redeliver(Env env) throws Exception {
        String topic = env.topic("redeliver");
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscribe();
        sendAll(env.producer(topic).create(), numbered(10));
        List<Message<byte[]>> messages = receive(consumer, 10);
        consumer.acknowledgeCumulative(messages.get(3));
        consumer.redeliverUnacknowledgedMessages();
        expectEqual(receiveAck(consumer, 6), numbered(10).subList(4, 10), "redelivered");
    }

    private static void ackTimeout(Env env) throws Exception {
        String topic = env.topic("ack-timeout");
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared)
                .ackTimeout(1, TimeUnit.SECONDS).ackTimeoutTickTime(200, TimeUnit.MILLISECONDS).subscribe();
        sendAll(env.producer(topic).create(), numbered(4));
        consumer.acknowledge(receive(consumer, 4).get(0));
        List<String> again = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Message<byte[]> message = receive(consumer);
            expect(message.getRedeliveryCount() >= 1, "redelivery count stays 0");
            again.add(text(message));
            consumer.acknowledge(message);
        }
        expectEqual(sorted(again), numbered(4).subList(1, 4), "redelivered");
    }

    private static void deadLetter(Env env) throws Exception {
        String topic = env.topic("dead-letter");
        String deadTopic = topic + "-s-DLQ";
        Consumer<byte[]> dead =
                env.consumer(deadTopic, "sink").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        Consumer<byte[]> consumer = quick(env, topic).subscriptionType(SubscriptionType.Shared)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).initialSubscriptionName("kept").build()).subscribe();
        Producer<byte[]> producer = env.producer(topic).create();
        producer.newMessage().value(bytes("poison")).key("k").property("who", "me").send();
        producer.send(bytes("fine"));
        List<String> deliveries = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            Message<byte[]> message = receive(consumer);
            deliveries.add(text(message) + message.getRedeliveryCount());
            if (text(message).equals("fine")) {
                consumer.acknowledge(message);
            } else {
                consumer.negativeAcknowledge(message);
            }
        }
        expectEqual(sorted(deliveries), List.of("fine0", "poison0", "poison1", "poison2"), "deliveries and their counts");
        Message<byte[]> message = receive(dead);
        expectEqual(text(message), "poison", "content in the dead letter topic");
        expectEqual(message.getProperty("who"), "me", "its property");
        expectEqual(message.getKey(), "k", "its key");
        Consumer<byte[]> kept = env.consumer(deadTopic, "kept").subscribe();
        expectEqual(receiveAck(kept, 1), List.of("poison"), "the subscription made with the dead letter topic");
        sendAll(producer, List.of("sentinel"));
        expectEqual(receiveAck(consumer, 1), List.of("sentinel"), "the subscription goes on");
    }

    private static void retryLetter(Env env) throws Exception {
        String topic = env.topic("retry-letter");
        Consumer<byte[]> dead = env.consumer(topic + "-s-DLQ", "sink")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscriptionType(SubscriptionType.Shared).enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).build()).subscribe();
        env.producer(topic).create().newMessage().value(bytes("again")).property("who", "me").send();
        for (int i = 0; i < 3; i++) {
            Message<byte[]> message = receive(consumer);
            expectEqual(text(message), "again", "content in try " + i);
            expectEqual(message.getProperty("who"), "me", "property in try " + i);
            expectEqual(message.getTopicName(), i == 0 ? topic : topic + "-s-RETRY", "topic in try " + i);
            expectEqual(message.getProperty("RECONSUMETIMES"), i == 0 ? null : "" + i, "count in try " + i);
            consumer.reconsumeLater(message, 200, TimeUnit.MILLISECONDS);
        }
        expectEqual(receiveAck(dead, 1), List.of("again"), "the dead letter topic");
    }
}
