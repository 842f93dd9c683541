package clients;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;

/**
 * The tests, and how they run: a few at a time, each in its own thread with a deadline, so that a broker that never answers costs
 * one failed line and not the whole run.
 */
final class Suite {
    private static final String LANGUAGE = "java";
    private static final long TEST_DEADLINE_MS = 60_000;
    private static final int WORKERS = 4;

    interface Body {
        void run(Env env) throws Exception;
    }

    private record Test(String name, boolean extension, Body body) {}

    private final List<Test> tests = new ArrayList<>();
    private final AtomicBoolean allPassed = new AtomicBoolean(true);

    void add(String name, Body body) {
        tests.add(new Test(name, false, body));
    }

    /** A test that needs Pharos; stock Pulsar cannot pass it. */
    void addExtension(String name, Body body) {
        tests.add(new Test(name, true, body));
    }

    /** Runs what the environment asks for; true when all passed. */
    boolean run() throws InterruptedException {
        String only = Optional.ofNullable(System.getenv("PHAROS_TEST_FILTER")).orElse("");
        boolean skipExtension = "1".equals(System.getenv("PHAROS_SKIP_EXTENSION"));
        ConcurrentLinkedQueue<Test> waiting = new ConcurrentLinkedQueue<>();
        for (Test test : tests) {
            if (test.name.contains(only) && !(skipExtension && test.extension)) {
                waiting.add(test);
            }
        }
        List<Thread> workers = new ArrayList<>();
        for (int i = 0; i < WORKERS; i++) {
            Thread worker = daemon(() -> {
                for (Test test; (test = waiting.poll()) != null; ) {
                    runOne(test);
                }
            });
            workers.add(worker);
        }
        for (Thread worker : workers) {
            worker.join();
        }
        return allPassed.get();
    }

    private void runOne(Test test) {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        long started = System.nanoTime();
        Thread thread = daemon(() -> {
            try (Env env = new Env()) {
                test.body.run(env);
            } catch (Throwable error) {
                failure.set(error);
            }
        });
        try {
            thread.join(TEST_DEADLINE_MS);
        } catch (InterruptedException error) {
            failure.set(error);
        }
        if (thread.isAlive()) {
            failure.set(new AssertionError("not finished within " + TEST_DEADLINE_MS / 1000 + " s"));
        }
        report(test.name, failure.get(), (System.nanoTime() - started) / 1_000_000);
    }

    private synchronized void report(String name, Throwable error, long ms) {
        if (System.getenv("PHAROS_TEST_TIMES") != null) {
            System.err.println(name + ": " + ms + " ms");
        }
        if (error == null) {
            System.out.println("ok " + LANGUAGE + " " + name);
            return;
        }
        allPassed.set(false);
        String text = error instanceof AssertionError ? error.getMessage() : error.toString();
        System.out.println("not ok " + LANGUAGE + " " + name + ": " + text.replaceAll("\\s+", " "));
        error.printStackTrace();
    }

    static Thread daemon(Runnable body) {
        Thread thread = new Thread(body);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }
}
