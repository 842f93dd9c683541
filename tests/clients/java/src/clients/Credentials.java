package clients;

import static clients.Env.*;

import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;

/** Credentials that expire while a consumer listens; runs only where run.sh was told which credentials to show. */
final class Credentials {
    static void register(Suite suite) {
        String seconds = setting("PHAROS_AUTH_SECONDS");
        if (seconds != null) {
            suite.add("credentials-long-consume", env -> longConsume(env, Double.parseDouble(seconds)));
        }
    }

    /** Those that run.sh was told to show; null for none. */
    static Authentication shown() throws PulsarClientException {
        String kind = setting("PHAROS_AUTH");
        if (kind == null) {
            return null;
        }
        String[] plugin = setting("PHAROS_AUTH_PLUGIN").split(" ", 2);
        return AuthenticationFactory.create(plugin[0], plugin[1]);
    }

    private static void longConsume(Env env, double seconds) throws Exception {
        String topic = env.topic("credentials");
        Consumer<byte[]> consumer = env.consumer(topic, "s").subscribe();
        Producer<byte[]> producer = env.producer(topic).create();
        long end = System.nanoTime() + (long) (seconds * TimeUnit.SECONDS.toNanos(1));
        for (int i = 0; System.nanoTime() < end; i++) {
            producer.send(bytes("m-" + i));
            Message<byte[]> message = receive(consumer);
            expectEqual(text(message), "m-" + i, "the next message");
            expectEqual(message.getRedeliveryCount(), 0, "redelivery count");
            consumer.acknowledge(message);
            Thread.sleep(50);
        }
    }
}
