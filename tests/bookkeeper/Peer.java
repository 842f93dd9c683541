import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * The Java client of Apache BookKeeper, told line by line what to do; run by crates/bookkeeper/tests/java.rs.
 *
 *   java Peer ZOOKEEPER-ADDRESS
 *
 * Each line of input is a command, each gets one line of output: "ok ..." or "error CLASS MESSAGE". CLIENT is one of v3, v2 (the version of
 * the bookie protocol; Pulsar's brokers use v2) and lac (v3, and open ledgers tell every 50 ms how far they are confirmed).
 *
 *   create CLIENT E WQ AQ DIGEST PASSWORD [KEY=VALUE...]   ok LEDGER
 *   append LEDGER COUNT                                    ok LAST       waits until they are confirmed
 *   flood LEDGER                                           ok            appends until it is refused
 *   reached LEDGER COUNT                                   ok            waits until the flood has so many confirmed
 *   flooded LEDGER                                         ok CONFIRMED CLASS    waits for the end of the flood
 *   close LEDGER                                           ok
 *   recover CLIENT LEDGER DIGEST PASSWORD                  ok LAST LENGTH KEY=VALUE,...   fences, reads and checks all entries
 *   read CLIENT LEDGER DIGEST PASSWORD                     ok LAST CLOSED                 does not fence; reads and checks what it may
 *   lac LEDGER DIGEST PASSWORD                             ok LAST       of an open ledger, as told without an entry
 *   delete CLIENT LEDGER                                   ok
 */
public final class Peer {
    private static String zookeeper;
    private static final Map<String, BookKeeper> clients = new HashMap<>();
    private static final Map<Long, LedgerHandle> open = new HashMap<>();
    private static final Map<Long, Flood> floods = new HashMap<>();

    /** Appends with some entries in flight until one is refused. */
    private static final class Flood implements Runnable {
        final LedgerHandle ledger;
        final AtomicLong confirmed = new AtomicLong();
        final AtomicInteger code = new AtomicInteger(BKException.Code.OK);
        final Thread thread = new Thread(this);

        Flood(LedgerHandle ledger) {
            this.ledger = ledger;
            thread.start();
        }

        @Override
        public void run() {
            Semaphore room = new Semaphore(50);
            for (long entry = 0; code.get() == BKException.Code.OK; entry++) {
                room.acquireUninterruptibly();
                ledger.asyncAddEntry(payload(ledger.getId(), entry), (rc, handle, id, context) -> {
                    if (rc == BKException.Code.OK) {
                        confirmed.incrementAndGet();
                    } else {
                        code.compareAndSet(BKException.Code.OK, rc);
                    }
                    room.release();
                }, null);
            }
            room.acquireUninterruptibly(50);
        }
    }

    /** What an entry of these tests holds. */
    private static byte[] payload(long ledger, long entry) {
        String text = "ledger " + ledger + " entry " + entry + " ";
        return text.repeat((int) (1 + entry * 7 % 23)).getBytes(StandardCharsets.US_ASCII);
    }

    private static BookKeeper client(String name) throws Exception {
        BookKeeper client = clients.get(name);
        if (client == null) {
            ClientConfiguration conf = new ClientConfiguration();
            conf.setMetadataServiceUri("zk+hierarchical://" + zookeeper + "/ledgers");
            conf.setZkTimeout(10_000);
            conf.setUseV2WireProtocol(name.equals("v2"));
            conf.setAddEntryTimeout(10);
            conf.setReadEntryTimeout(10);
            conf.setNumIOThreads(1);
            conf.setNumWorkerThreads(1);
            if (name.equals("lac")) {
                conf.setExplictLacInterval(50);
            }
            client = new BookKeeper(conf);
            clients.put(name, client);
        }
        return client;
    }

    private static DigestType digest(String name) {
        return DigestType.valueOf(name);
    }

    /** A dash is the empty password, which is Pulsar's. */
    private static byte[] password(String word) {
        return word.equals("-") ? new byte[0] : word.getBytes(StandardCharsets.UTF_8);
    }

    private static String create(String[] words) throws Exception {
        Map<String, byte[]> custom = new HashMap<>();
        for (String pair : Arrays.copyOfRange(words, 7, words.length)) {
            String[] parts = pair.split("=", 2);
            custom.put(parts[0], parts[1].getBytes(StandardCharsets.UTF_8));
        }
        LedgerHandle ledger = client(words[1]).createLedger(Integer.parseInt(words[2]), Integer.parseInt(words[3]),
            Integer.parseInt(words[4]), digest(words[5]), password(words[6]), custom);
        open.put(ledger.getId(), ledger);
        return "ok " + ledger.getId();
    }

    private static String append(LedgerHandle ledger, int count) throws Exception {
        long first = ledger.getLastAddPushed() + 1;
        CompletableFuture<Long> last = new CompletableFuture<>();
        for (long entry = first; entry < first + count; entry++) {
            final boolean isLast = entry == first + count - 1;
            ledger.asyncAddEntry(payload(ledger.getId(), entry), (rc, handle, id, context) -> {
                if (rc != BKException.Code.OK) {
                    last.completeExceptionally(BKException.create(rc));
                } else if (isLast) {
                    last.complete(id);
                }
            }, null);
        }
        return "ok " + last.get();
    }

    /** Reads in steps, so that no answer is large. */
    private static void check(LedgerHandle ledger, long last) throws Exception {
        for (long first = 0; first <= last; first += 100) {
            long expected = first;
            Enumeration<LedgerEntry> entries = ledger.readEntries(first, Math.min(first + 99, last));
            while (entries.hasMoreElements()) {
                LedgerEntry entry = entries.nextElement();
                if (entry.getEntryId() != expected || !Arrays.equals(entry.getEntry(), payload(ledger.getId(), expected))) {
                    throw new IllegalStateException("entry " + expected + " is another one");
                }
                expected++;
            }
        }
    }

    private static String recover(String[] words) throws Exception {
        try (LedgerHandle ledger = client(words[1]).openLedger(Long.parseLong(words[2]), digest(words[3]), password(words[4]))) {
            check(ledger, ledger.getLastAddConfirmed());
            Map<String, String> custom = new TreeMap<>();
            ledger.getCustomMetadata().forEach((key, value) -> custom.put(key, new String(value, StandardCharsets.UTF_8)));
            StringBuilder text = new StringBuilder();
            custom.forEach((key, value) -> text.append(text.length() == 0 ? "" : ",").append(key).append('=').append(value));
            return "ok " + ledger.getLastAddConfirmed() + " " + ledger.getLength() + " " + text;
        }
    }

    private static String read(String[] words) throws Exception {
        try (LedgerHandle ledger = client(words[1]).openLedgerNoRecovery(Long.parseLong(words[2]), digest(words[3]), password(words[4]))) {
            long last = ledger.isClosed() ? ledger.getLastAddConfirmed() : ledger.readLastConfirmed();
            check(ledger, last);
            return "ok " + last + " " + ledger.isClosed();
        }
    }

    private static String run(String[] words) throws Exception {
        if (words[0].equals("create")) {
            return create(words);
        } else if (words[0].equals("recover")) {
            return recover(words);
        } else if (words[0].equals("read")) {
            return read(words);
        } else if (words[0].equals("lac")) {
            try (LedgerHandle ledger = client("v3").openLedgerNoRecovery(Long.parseLong(words[1]), digest(words[2]), password(words[3]))) {
                return "ok " + ledger.readExplicitLastConfirmed();
            }
        } else if (words[0].equals("delete")) {
            client(words[1]).deleteLedger(Long.parseLong(words[2]));
            return "ok";
        }
        long id = Long.parseLong(words[1]);
        switch (words[0]) {
            case "append":
                return append(open.get(id), Integer.parseInt(words[2]));
            case "flood":
                floods.put(id, new Flood(open.get(id)));
                return "ok";
            case "reached":
                while (floods.get(id).confirmed.get() < Long.parseLong(words[2])) {
                    if (floods.get(id).code.get() != BKException.Code.OK) {
                        throw BKException.create(floods.get(id).code.get());
                    }
                    Thread.sleep(5);
                }
                return "ok";
            case "flooded":
                Flood flood = floods.remove(id);
                flood.thread.join();
                return "ok " + flood.confirmed.get() + " " + BKException.create(flood.code.get()).getClass().getSimpleName();
            case "close":
                open.remove(id).close();
                return "ok";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        // Logs go to a file of their own.
        System.setOut(System.err);
        zookeeper = args[0];
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer;
            try {
                answer = run(line.split(" "));
            } catch (Exception error) {
                Throwable cause = error instanceof java.util.concurrent.ExecutionException ? error.getCause() : error;
                answer = "error " + cause.getClass().getSimpleName() + " " + String.valueOf(cause.getMessage()).replace('\n', ' ');
            }
            answers.println(answer);
            answers.flush();
        }
        // Not closed one by one: ledgers that are open stay open.
        Runtime.getRuntime().halt(0);
    }
}
