package clients;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;

/** What a test works with: a client of its own, names of its own, and ways to say what must be true. */
final class Env implements AutoCloseable {
    /** How long to wait for a message that must come. */
    static final int RECEIVE_SECONDS = 15;

    final PulsarClient client;
    private final String admin = System.getenv("PHAROS_ADMIN").replaceAll("/$", "");

    interface Call {
        Object run() throws Exception;
    }

    Env() throws PulsarClientException {
        this(false);
    }

    /** One whose client makes transactions. */
    static Env transactional() throws PulsarClientException {
        return new Env(true);
    }

    private Env(boolean transactions) throws PulsarClientException {
        ClientBuilder builder = PulsarClient.builder().serviceUrl(System.getenv("PHAROS_URL")).ioThreads(1).listenerThreads(1)
                .operationTimeout(15, TimeUnit.SECONDS).enableTransaction(transactions);
        // What a `pulsar+ssl://` URL needs: whom to trust, and the certificate to show, if there is one.
        String trust = setting("PHAROS_TLS_TRUST_CERTS");
        String certificate = setting("PHAROS_TLS_CERT");
        if (trust != null) {
            builder.tlsTrustCertsFilePath(trust).enableTlsHostnameVerification(true);
        }
        if (certificate != null) {
            builder.authentication(AuthenticationFactory.TLS(certificate, setting("PHAROS_TLS_KEY")));
        }
        Authentication shown = Credentials.shown();
        if (shown != null) {
            builder.authentication(shown);
        }
        client = builder.build();
    }

    static String setting(String name) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? null : value;
    }

    @Override
    public void close() {
        // Not awaited: the client's event loops take two quiet seconds to end.
        client.closeAsync();
    }

    String topic(String test) {
        return "persistent://public/default/java-" + test + "-" + UUID.randomUUID().toString().substring(24);
    }

    ConsumerBuilder<byte[]> consumer(String topic, String subscription) {
        return client.newConsumer().topic(topic).subscriptionName(subscription);
    }

    /** A producer that sends each message alone. */
    ProducerBuilder<byte[]> producer(String topic) {
        return client.newProducer().topic(topic).enableBatching(false);
    }

    /** A producer whose messages go as one batch at `flush`, as long as they fit. */
    ProducerBuilder<byte[]> batching(String topic) {
        return client.newProducer().topic(topic).enableBatching(true).batchingMaxPublishDelay(5, TimeUnit.SECONDS);
    }

    /** Compacts the topic and waits until that is done. */
    void compact(String topic) throws Exception {
        URI uri = URI.create(admin + topic.replace("persistent://", "/admin/v2/persistent/") + "/compaction");
        HttpClient http = HttpClient.newHttpClient();
        HttpRequest begin = HttpRequest.newBuilder(uri).PUT(HttpRequest.BodyPublishers.ofString("")).build();
        int begun = http.send(begin, HttpResponse.BodyHandlers.discarding()).statusCode();
        expect(begun == 200 || begun == 204, "compact: HTTP " + begun);
        for (int tries = 0; tries < 300; tries++) {
            String status = http.send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofString()).body();
            expect(!status.contains("ERROR"), "compaction: " + status);
            if (status.contains("SUCCESS")) {
                return;
            }
            Thread.sleep(50);
        }
        throw new AssertionError("the topic is not compacted");
    }

    void createPartitioned(String topic, int partitions) throws Exception {
        ask("PUT", topic, "/partitions", Integer.toString(partitions));
    }

    /** Makes a topic that stores each message once, and waits until it does. */
    void deduplicate(String topic) throws Exception {
        ask("PUT", topic, "", "");
        ask("POST", topic, "/deduplicationEnabled", "true");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
        while (!ask("GET", topic, "/stats", "").contains("\"Enabled\"")) {
            expect(System.nanoTime() < end, "deduplication is not turned on");
            Thread.sleep(50);
        }
    }

    private String ask(String method, String topic, String path, String body) throws Exception {
        URI uri = URI.create(admin + topic.replace("persistent://", "/admin/v2/persistent/") + path);
        HttpRequest request = HttpRequest.newBuilder(uri).header("Content-Type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        expect(answer.statusCode() / 100 == 2, method + " " + uri + ": HTTP " + answer.statusCode() + " " + answer.body());
        return answer.body();
    }

    static void expect(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    static void expectEqual(Object actual, Object expected, String what) {
        expect(Objects.equals(actual, expected), what + ": expected " + brief(expected) + ", got " + brief(actual));
    }

    static void expectError(Class<? extends Throwable> kind, String what, Call call) throws Exception {
        try {
            call.run();
        } catch (Exception error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (kind.isInstance(cause)) {
                    return;
                }
            }
            throw new AssertionError(what + ": expected " + kind.getSimpleName() + ", got " + error, error);
        }
        throw new AssertionError(what + ": expected " + kind.getSimpleName() + ", but it succeeded");
    }

    static void waitUntil(String what, BooleanSupplier condition) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!condition.getAsBoolean()) {
            expect(System.nanoTime() < end, "not within 20 s: " + what);
            Thread.sleep(10);
        }
    }

    /** The next message, which must come. */
    static <T> Message<T> receive(Consumer<T> consumer) throws PulsarClientException {
        Message<T> message = consumer.receive(RECEIVE_SECONDS, TimeUnit.SECONDS);
        expect(message != null, "no message within " + RECEIVE_SECONDS + " s");
        return message;
    }

    static List<Message<byte[]>> receive(Consumer<byte[]> consumer, int count) throws PulsarClientException {
        List<Message<byte[]>> messages = new ArrayList<>();
        while (messages.size() < count) {
            Message<byte[]> message = consumer.receive(RECEIVE_SECONDS, TimeUnit.SECONDS);
            expect(message != null, "no message within " + RECEIVE_SECONDS + " s after " + messages.size() + " of " + count);
            messages.add(message);
        }
        return messages;
    }

    /** The next messages, each acknowledged; returns their contents. */
    static List<String> receiveAck(Consumer<byte[]> consumer, int count) throws PulsarClientException {
        List<String> contents = new ArrayList<>();
        for (Message<byte[]> message : receive(consumer, count)) {
            contents.add(text(message));
            consumer.acknowledge(message);
        }
        return contents;
    }

    /** A message, and which of several consumers got it. */
    record Got(int consumer, Message<byte[]> message) {}

    /** Polls all consumers until `count` messages came in all. */
    static List<Got> collect(List<Consumer<byte[]>> consumers, int count, boolean acknowledge) throws PulsarClientException {
        List<Got> got = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (got.size() < count) {
            expect(System.nanoTime() < end, "only " + got.size() + " of " + count + " messages within 20 s");
            for (int i = 0; i < consumers.size(); i++) {
                Message<byte[]> message;
                while (got.size() < count && (message = consumers.get(i).receive(20, TimeUnit.MILLISECONDS)) != null) {
                    got.add(new Got(i, message));
                    if (acknowledge) {
                        consumers.get(i).acknowledge(message);
                    }
                }
            }
        }
        return got;
    }

    /** Sends without waiting for each, flushes, and returns the message ids in order. */
    static List<MessageId> sendAll(Producer<byte[]> producer, List<String> contents) throws Exception {
        List<CompletableFuture<MessageId>> receipts = new ArrayList<>();
        for (String content : contents) {
            receipts.add(producer.sendAsync(bytes(content)));
        }
        producer.flushAsync().get(20, TimeUnit.SECONDS);
        List<MessageId> ids = new ArrayList<>();
        for (CompletableFuture<MessageId> receipt : receipts) {
            ids.add(receipt.get(20, TimeUnit.SECONDS));
        }
        return ids;
    }

    static List<String> numbered(int count) {
        return numbered("m", count);
    }

    static List<String> numbered(String prefix, int count) {
        return IntStream.range(0, count).mapToObj(i -> prefix + "-" + i).toList();
    }

    static List<String> sorted(List<String> values) {
        return values.stream().sorted().toList();
    }

    static List<String> joined(List<String> first, List<String> second) {
        List<String> both = new ArrayList<>(first);
        both.addAll(second);
        return both;
    }

    static String text(Message<byte[]> message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String brief(Object value) {
        String text = String.valueOf(value);
        return text.length() <= 200 ? text : text.substring(0, 200) + "…";
    }
}
