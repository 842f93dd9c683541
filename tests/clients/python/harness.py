"""Runs the tests of this suite and prints one line for each.

Every test is a function that takes an `Env`. Tests run a few at a time, each in its own thread with a deadline, so that a
broker that never answers costs one failed line and not the whole run. Topics are named at random: runs never disturb each other.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
import urllib.request
import uuid

import pulsar

LANGUAGE = "python"
TEST_DEADLINE_S = 60
WORKERS = 4
# How long to wait for a message that must come.
RECEIVE_MS = 15_000

_tests = []


def test(name, extension=False):
    """Registers a test. An `extension` test needs Pharos; stock Pulsar cannot pass it."""

    def register(function):
        _tests.append((name, extension, function))
        return function

    return register


class Env:
    """Where the broker is, and a client of the test's own: a broker may close a connection on one test and not hurt another."""

    def __init__(self):
        self.admin = os.environ["PHAROS_ADMIN"].rstrip("/")
        log = os.environ.get("PHAROS_LOG")
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Info, log) if log else None
        self.client = pulsar.Client(
            os.environ["PHAROS_URL"], operation_timeout_seconds=15, logger=logger,
            **{**_tls_options(), **_credentials()})

    def topic(self, test_name):
        return f"persistent://public/default/python-{test_name}-{uuid.uuid4().hex[:12]}"

    def create_partitioned(self, topic, partitions):
        self._ask("PUT", f"{self._path(topic)}/partitions", str(partitions))

    def deduplicate(self, topic):
        """Makes a topic that stores each message once, and waits until it does."""
        self._ask("PUT", self._path(topic))
        self._ask("POST", f"{self._path(topic)}/deduplicationEnabled", "true")
        end = time.monotonic() + 15
        while json.loads(self._ask("GET", f"{self._path(topic)}/stats"))["deduplicationStatus"] != "Enabled":
            expect(time.monotonic() < end, "deduplication is not turned on")
            time.sleep(0.05)

    def _path(self, topic):
        return topic.replace("persistent://", "/admin/v2/persistent/")

    def _ask(self, method, path, body=None):
        request = urllib.request.Request(
            f"{self.admin}{path}", data=body and body.encode(), method=method, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=15) as answer:
            expect(answer.status in (200, 204), f"{method} {path}: HTTP {answer.status}")
            return answer.read()

    def compact(self, topic):
        """Compacts the topic and waits until that is done."""
        url = f"{self.admin}{topic.replace('persistent://', '/admin/v2/persistent/')}/compaction"
        request = urllib.request.Request(url, data=b"", method="PUT", headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=15) as answer:
            expect(answer.status in (200, 204), f"compact: HTTP {answer.status}")

        def is_done():
            with urllib.request.urlopen(url, timeout=15) as answer:
                status = json.load(answer)
            expect(status["status"] != "ERROR", f"compaction: {status}")
            return status["status"] == "SUCCESS"

        wait_until(is_done, "the topic is not compacted")


def _tls_options():
    """What a `pulsar+ssl://` URL needs: whom to trust, and the certificate to show, if there is one."""
    trust, certificate = os.environ.get("PHAROS_TLS_TRUST_CERTS"), os.environ.get("PHAROS_TLS_CERT")
    options = {}
    if trust:
        options["tls_trust_certs_file_path"] = trust
        options["tls_validate_hostname"] = True
    if certificate:
        options["authentication"] = pulsar.AuthenticationTLS(certificate, os.environ["PHAROS_TLS_KEY"])
    return options


def _credentials():
    """What run.sh was told to show."""
    kind = os.environ.get("PHAROS_AUTH")
    if kind == "token":
        return {"authentication": pulsar.AuthenticationToken(_token)}
    if kind == "basic":
        return {"authentication": pulsar.AuthenticationBasic(
            os.environ["PHAROS_AUTH_USER"], os.environ["PHAROS_AUTH_PASSWORD"])}
    if kind == "oauth2":
        return {"authentication": pulsar.AuthenticationOauth2(json.dumps({
            "type": "client_credentials", "issuer_url": os.environ["PHAROS_AUTH_ISSUER"],
            "private_key": os.environ["PHAROS_AUTH_KEY_FILE"], "audience": os.environ["PHAROS_AUTH_AUDIENCE"]}))}
    return {}


def _token():
    with open(os.environ["PHAROS_AUTH_TOKEN_FILE"], encoding="ascii") as file:
        return file.read().strip()


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def expect_equal(actual, expected, what):
    if actual != expected:
        raise AssertionError(f"{what}: expected {_short(expected)}, got {_short(actual)}")


def expect_error(error, call, what):
    """`call` must fail with `error`."""
    try:
        call()
    except error:
        return
    except Exception as other:
        raise AssertionError(f"{what}: expected {error.__name__}, got {type(other).__name__}: {other}") from other
    raise AssertionError(f"{what}: expected {error.__name__}, but it succeeded")


def receive(consumer, timeout_ms=RECEIVE_MS):
    """The next message, which must come."""
    try:
        return consumer.receive(timeout_millis=timeout_ms)
    except pulsar.Timeout:
        raise AssertionError(f"no message within {timeout_ms} ms") from None


def receive_ack(consumer, count):
    """`count` messages, each acknowledged; returns their contents."""
    contents = []
    for index in range(count):
        try:
            message = consumer.receive(timeout_millis=RECEIVE_MS)
        except pulsar.Timeout:
            raise AssertionError(f"no message within {RECEIVE_MS} ms after {index} of {count}") from None
        contents.append(message.data().decode())
        consumer.acknowledge(message)
    return contents


def collect(consumers, count, acknowledge=True, deadline_s=20):
    """Polls all consumers until `count` messages came in all; returns a list of (consumer index, message)."""
    got = []
    end = time.monotonic() + deadline_s
    while len(got) < count:
        expect(time.monotonic() < end, f"only {len(got)} of {count} messages within {deadline_s} s")
        for index, consumer in enumerate(consumers):
            try:
                while len(got) < count:
                    message = consumer.receive(timeout_millis=20)
                    got.append((index, message))
                    if acknowledge:
                        consumer.acknowledge(message)
            except pulsar.Timeout:
                pass
    return got


def send_all(producer, contents, **options):
    """Sends without waiting for each, flushes, and returns the message ids in order."""
    ids, failures = {}, []

    def done(index):
        def on_receipt(result, message_id):
            if result == pulsar.Result.Ok:
                ids[index] = message_id
            else:
                failures.append(f"{contents[index][:40]}: {result}")
        return on_receipt

    for index, content in enumerate(contents):
        producer.send_async(content.encode(), done(index), **options)
    producer.flush()
    wait_until(lambda: len(ids) + len(failures) == len(contents), "all receipts")
    expect(not failures, f"send failed: {failures[:3]}")
    return [ids[index] for index in range(len(contents))]


def wait_until(condition, what, deadline_s=20):
    end = time.monotonic() + deadline_s
    while not condition():
        expect(time.monotonic() < end, f"not within {deadline_s} s: {what}")
        time.sleep(0.01)


def numbered(count, prefix="m"):
    return [f"{prefix}-{index}" for index in range(count)]


def _short(value):
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"


def main():
    only = os.environ.get("PHAROS_TEST_FILTER", "")
    skip_extension = os.environ.get("PHAROS_SKIP_EXTENSION") == "1"
    chosen = [t for t in _tests if only in t[0] and not (skip_extension and t[1])]
    waiting = queue.Queue()
    for item in chosen:
        waiting.put(item)
    failed, output = [], threading.Lock()

    def report(line, ok, name, detail=""):
        with output:
            print(line, flush=True)
            if not ok:
                failed.append(name)
                print(detail, file=sys.stderr, flush=True)

    def run_one(name, function):
        started, result = time.monotonic(), {}

        def body():
            try:
                env = Env()
                function(env)
                try:
                    env.client.close()
                except pulsar.AlreadyClosed:
                    pass  # a producer that was fenced counts as closed
                result["ok"] = True
            except Exception as error:  # whatever the client throws is this test's failure
                text = " ".join(str(error).split())
                result["error"] = text if isinstance(error, AssertionError) else f"{type(error).__name__}: {text}"
                result["detail"] = traceback.format_exc()

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        thread.join(TEST_DEADLINE_S)
        if os.environ.get("PHAROS_TEST_TIMES"):
            print(f"{name}: {time.monotonic() - started:.1f} s", file=sys.stderr)
        if "ok" in result:
            report(f"ok {LANGUAGE} {name}", True, name)
        else:
            reason = result.get("error", f"not finished within {TEST_DEADLINE_S} s")
            report(f"not ok {LANGUAGE} {name}: {reason}", False, name, result.get("detail", ""))

    def worker():
        while True:
            try:
                name, _, function = waiting.get_nowait()
            except queue.Empty:
                return
            run_one(name, function)

    workers = [threading.Thread(target=worker, daemon=True) for _ in range(WORKERS)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    sys.stdout.flush()
    # Not a normal exit: a hung test's thread may sit inside the native client, and closing that would hang too.
    os._exit(1 if failed else 0)
