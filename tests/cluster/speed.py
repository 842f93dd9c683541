"""Publishing through two brokers over three bookies, Pharos and Pulsar in turn on the same bookies. See speed.sh.

Each case is a size of messages, a number of topics, and one of four levels of durability: all copies acknowledged or all but one, by
bookies that sync their journal or do not. All cases are measured at a fixed rate first, for latencies, twice, and then as fast as it goes:
what a run of gigabytes leaves to be written is in the latencies of the one behind it. Which system comes first changes from case to case, and in
the second round it is the other one.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from measured import Run, cpu_seconds, rss_mb
from servers import JAVA_MEASURED, Cluster, Hosts, Server, free_ports, until

SIZES = [("1KB", "1 KB"), ("300", "300 B")]
TOPICS = [1, 100]
# Of three bookies that each have a copy, how many are waited for.
ACKS = [3, 2]
# Rates at which latencies are measured, messages a second: what two brokers carry easily on a small machine.
RATE = 5000
ROUNDS = 2
# Which system comes first in a case: as often either, with any size and number of topics.
FIRST = [0, 1, 1, 0, 1, 0, 0, 1]
# What measure_alone() is called in the results.
ALONE = "no broker"
# After bookies have taken all that they can, seconds until latencies are measured.
REST = 15

PULSAR_JVM = [
    "java", "-server", "-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=10",
    "-XX:+PerfDisableSharedMem", "-XX:+ExitOnOutOfMemoryError", "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djava.net.preferIPv4Stack=true",
    *itertools.chain.from_iterable(("--add-opens", f"{package}=ALL-UNNAMED") for package in [
        "java.base/java.io", "java.base/java.lang", "java.base/java.nio", "java.base/java.util.zip", "java.base/jdk.internal.loader",
        "java.base/jdk.internal.misc", "java.base/jdk.internal.platform", "java.base/sun.net", "java.base/sun.nio.ch",
        "jdk.management/com.sun.management.internal",
    ]),
]

# What a broker of Pulsar is told; what is not named has its default.
PULSAR_SETTINGS = """clusterName=speed
metadataStoreUrl=zk:{zk}/pulsar
configurationMetadataStoreUrl=zk:{zk}/pulsar
bookkeeperMetadataServiceUri=zk+hierarchical://{zk}/ledgers
brokerServicePort={port}
webServicePort={http}
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
managedLedgerDefaultEnsembleSize=3
managedLedgerDefaultWriteQuorum=3
managedLedgerDefaultAckQuorum=3
allowAutoTopicCreationType=non-partitioned
brokerDeleteInactiveTopicsEnabled=false
defaultNumberOfNamespaceBundles=4
transactionCoordinatorEnabled=false
backlogQuotaDefaultLimitGB=-1
systemTopicEnabled=true
topicLevelPoliciesEnabled=true
loadBalancerSheddingEnabled=false
loadBalancerAutoBundleSplitEnabled=false
"""

# Of the bookies, beside what servers.py says: a journal as a production bookie has it, and nothing kept for long of ledgers that are deleted,
# as each run writes some gigabytes.
BOOKIES = ["journalMaxGroupWaitMSec=1", "journalPreAllocSizeMB=16", "flushInterval=60000", "numAddWorkerThreads=2",
    "dbStorage_writeCacheMaxSizeMb=128", "journalMaxSizeMB=256", "journalMaxBackups=0", "entryLogSizeLimit=268435456", "gcWaitTime=10000"]


def ask(http, path, method="GET", body=None):
    request = urllib.request.Request(f"http://{http}{path}", method=method, data=body)
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


class PulsarBroker(Server):
    start_max = 180

    def __init__(self, number, folder, jars, zk, ports):
        self.http = f"127.0.0.1:{ports[1]}"
        self.id, self.url = self.http, f"pulsar://127.0.0.1:{ports[0]}"
        conf = os.path.join(folder, f"pulsar{number}.conf")
        with open(conf, "w") as file:
            file.write(PULSAR_SETTINGS.format(zk=zk, port=ports[0], http=ports[1]))
        command = [*PULSAR_JVM, "-cp", f"{jars}/lib/*", "org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", conf]
        super().__init__(f"pulsar{number}", folder, "127.0.0.1", ports[0], command)

    def _listens(self):
        return super()._listens() and ask(self.http, "/admin/v2/brokers/ready")[0] == 200


class System:
    """One of the two: a name, and its brokers."""

    def __init__(self, name, brokers, cluster):
        self.name, self.brokers, self.cluster = name, brokers, cluster

    def http(self):
        return self.brokers[0].id

    def prepare(self):
        """A namespace for each number of copies that are waited for."""
        def made(path, method, body, fine):
            status, answer = ask(self.http(), path, method, body)
            assert status in fine, (self.name, path, status, answer)

        tenant = json.dumps({"allowedClusters": [self.cluster], "adminRoles": []}).encode()
        until(f"{self.name} takes requests", lambda: ask(self.http(), "/admin/v2/tenants")[0] == 200, 120)
        made("/admin/v2/tenants/speed", "PUT", tenant, (204, 409))
        for ack in ACKS:
            path = f"/admin/v2/namespaces/speed/ack{ack}"
            made(path, "PUT", b'{"bundles": {"numBundles": 16}}', (204, 409))
            copies = {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 3, "bookkeeperAckQuorum": ack,
                "managedLedgerMaxMarkDeleteRate": 1.0}
            made(f"{path}/persistence", "POST", json.dumps(copies).encode(), (204,))

    def delete(self, topic, topics):
        """Topics that the load program made, so that bookies have room for what comes."""
        names = [topic] if topics == 1 else [f"{topic}-{number}" for number in range(topics)]
        for name in names:
            path = "/admin/v2/" + name.replace("://", "/") + "?force=true"
            # One that does not own the topic sends to the one that does, or says so.
            if not any(ask(broker.id, path, "DELETE")[0] in (204, 404) for broker in self.brokers):
                print(f"{self.name} still has {name}", file=sys.stderr, flush=True)


def measure(pharos, system, case, form, run):
    """One run of the load program; what it printed, and what the brokers used for it."""
    topic = f"persistent://speed/ack{case['ack']}/{system.name.lower()}-{case['number']}-{run}"
    rate = 0 if run == "full" else RATE
    command = [pharos, "bench", "produce", "--url", system.brokers[0].url, "--topic", topic, "--topics", str(case["topics"]),
        "--size", case["size"], "--rate", str(rate), "--warmup", form["warmup"], "--duration", form["duration"], "--output", "json"]
    began = cpu_seconds(system.brokers)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no word"])[-1]}
    said = json.loads(done.stdout)
    used = cpu_seconds(system.brokers) - began
    rss = rss_mb(system.brokers)
    system.delete(topic, case["topics"])
    return {
        "rate": said["averagePublishRate"], "p50": said["aggregatedPublishLatency50pct"], "p99": said["aggregatedPublishLatency99pct"],
        "cpu": used, "rss": rss,
    }


def measure_alone(program, cluster, case, form):
    """The same rate without a broker: our client of bookies by itself. What the load program would put into one entry is one here."""
    entries, size = (1, 5) if case["topics"] == 1 else (5, 1)
    size *= {"1KB": 1000, "300": 300}[case["size"]]
    milliseconds = [str({"500ms": 500, "2s": 2000, "7s": 7000}[form[part]]) for part in ("warmup", "duration")]
    command = [program, f"{cluster.zk}/", str(case["topics"]), str(size), str(entries), str(case["ack"]), *milliseconds]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no word"])[-1]}
    said = json.loads(done.stdout)
    return {"p50": said["p50_ms"], "p99": said["p99_ms"], "cpu": said["cpu_s"]}


def cases(wanted):
    number = 0
    for synced in (True, False):
        for ack, (size, size_name), topics in itertools.product(ACKS, SIZES, TOPICS):
            number += 1
            level = f"{ack} of 3 copies, {'synced' if synced else 'not synced'}"
            name = f"{size_name}, {topics} topic{'s' if topics > 1 else ''}, {level}"
            if wanted in name:
                yield {"number": number, "synced": synced, "ack": ack, "size": size, "topics": topics, "name": name}


def start_pulsar(cluster, jars, brokers, is_first):
    if is_first:
        command = [*PULSAR_JVM[:2], "-Xmx256m", *PULSAR_JVM[5:], "-cp", f"{jars}/lib/*", "org.apache.pulsar.PulsarClusterMetadataSetup",
            "--cluster", "speed", "--metadata-store", f"zk:{cluster.zk}/pulsar",
            "--configuration-metadata-store", f"zk:{cluster.zk}/pulsar",
            "--existing-bk-metadata-service-uri", f"zk+hierarchical://{cluster.zk}/ledgers",
            "--web-service-url", f"http://{brokers[0].id}", "--broker-service-url", brokers[0].url]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for broker in brokers:
        broker.start()


def wait_for_bookies(cluster):
    """Brokers know of three bookies that take writes."""
    listed = lambda: len(json.loads(ask(cluster.brokers[0].id, "/admin/v2/bookies/all")[1])["bookies"])
    until("all bookies take writes", lambda: listed() == 3, 120)


def run_all(options, folder, say):
    form = {"warmup": "500ms", "duration": "2s"} if options.quick else {"warmup": "2s", "duration": "7s"}
    hosts = Hosts(options.pharos)
    hosts.settings = ["--bookkeeper-ensemble-size=3", "--bookkeeper-write-quorum=3", "--bookkeeper-ack-quorum=3",
        "--bookkeeper-placement=bookies", "--load-balancer-shedding-enabled=false", "--load-balancer-auto-split-enabled=false"]
    hosts.balance = "true"
    results, pulsars, is_first = [], [], True
    all_cases = list(cases(options.cases))
    # The journal syncs or not: that is a setting of the bookies, which are started again for it.
    hosts.of_bookies, hosts.java = [*BOOKIES, "journalSyncData=true"], JAVA_MEASURED
    cluster = Cluster(hosts, options.jars, folder)
    try:
        cluster.zookeeper.start()
        cluster.shell("initnewcluster")
        for synced, group in itertools.groupby(all_cases, lambda case: case["synced"]):
            for number in (1, 2, 3):
                path = os.path.join(folder, f"bookie{number}.conf")
                with open(path) as file:
                    text = file.read()
                with open(path, "w") as file:
                    file.write(text.replace("journalSyncData=true", f"journalSyncData={str(synced).lower()}"))
            for bookie in cluster.bookies:
                bookie.start()
            for broker in cluster.brokers:
                broker.start()
            wait_for_bookies(cluster)
            if not pulsars:
                ports = free_ports(4)
                pulsars = [PulsarBroker(n, folder, options.pulsar, cluster.zk, ports[2 * n - 2:2 * n]) for n in (1, 2)]
            start_pulsar(cluster, options.pulsar, pulsars, is_first)
            is_first = False
            systems = [System("Pharos", cluster.brokers, "standalone"), System("Pulsar", pulsars, "speed")]
            for system in systems:
                system.prepare()
            # Bookies that have just been started are slow for a while; what comes first would have it.
            for system in systems:
                first = {"number": f"first-{synced}", "ack": 3, "topics": 1, "size": "1KB"}
                say(f"not counted: {system.name}: {measure(options.pharos, system, first, form, 'full')}")
            time.sleep(REST)
            found = [(case, {}) for case in group]
            results += found
            for turn, run in enumerate([*(f"paced{number}" for number in range(ROUNDS)), "full"]):
                for case, of_case in found:
                    first = FIRST[case["number"] % len(FIRST)] ^ turn & 1
                    if options.alone and run != "full":
                        of_case[ALONE, run] = measure_alone(options.alone, cluster, case, form)
                        say(f"{case['name']}: {ALONE} {run}: {of_case[ALONE, run]}")
                    for system in (systems[first], systems[1 - first]):
                        of_case[system.name, run] = measure(options.pharos, system, case, form, run)
                        say(f"{case['name']}: {system.name} {run}: {of_case[system.name, run]}")
                        ended = [bookie for bookie in cluster.bookies if bookie.process.poll() is not None]
                        if ended:
                            # What was measured before is a page all the same.
                            say("".join(f"---- {bookie.name} ended\n{bookie.tail(15)}" for bookie in ended))
                            return results, form
            for server in [*pulsars, *cluster.brokers, *cluster.bookies]:
                server.stop(90)
    finally:
        for server in [*pulsars, *cluster.brokers, *cluster.bookies, cluster.zookeeper]:
            if server.process is not None:
                server.process.kill()
                server.process.wait()
    return results, form


NOT_RUN = {"error": "not run: a bookie had ended"}


def cell(rounds, key, digits):
    """The mean of rounds, and the least and most of them."""
    values = [one[key] for one in rounds if "error" not in one]
    if len(values) < len(rounds):
        return "–" if all(one is NOT_RUN for one in rounds) else "failed"
    text = f"{statistics.mean(values):,.{digits}f}"
    if key.startswith("p") and len(values) > 1:
        text += f" [{min(values):,.{digits}f}–{max(values):,.{digits}f}]"
    return text


def page(results, form, options, run):
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()[0]
    with open(os.path.join(options.pulsar, "version")) as file:
        pulsar_version = file.read().strip()
    lines = [
        "# A cluster beside Apache Pulsar's", "",
        "Two brokers of Pharos and two of Apache Pulsar on the same three bookies and the same ZooKeeper, in turn, on one machine, with one",
        "load program. Written by `tests/cluster/speed.sh`, not by hand.", "",
        *run.lines(pulsar_version, "Apache BookKeeper and ZooKeeper as in `tests/cluster/pom.xml`", java),
        f"- form: {'quick, which shows that it works and no more' if options.quick else 'long'}; warm-up {form['warmup']}, measured {form['duration']}",
        f"- command: `tests/cluster/speed.sh PHAROS PEERS{' --quick' if options.quick else ''}`", "",
        "Each message has three copies. *3 of 3* waits for all of them, *2 of 3* for two. *Synced*: a bookie acknowledges after a sync of its",
        "journal (`journalSyncData=true`); *not synced*: what its operating system has. Bookies, brokers and load share the machine, so a system",
        "that uses less of its processors leaves more to the bookies. After bookies have been started each system has a run that is not counted;",
        "which of the two comes first changes from case to case. Neither moves or cuts bundles by load.", "",
        f"## At {RATE:,} messages a second", "", f"Means of {ROUNDS} rounds, with the least and the most of them.", "",
        "| case | p50 ms, Pharos | Pulsar | p99 ms, Pharos | Pulsar | brokers' CPU s, Pharos | Pulsar | memory MB, Pharos | Pulsar |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]

    def rows(runs, keys, names=("Pharos", "Pulsar")):
        for case, found in results:
            of = [[found.get((name, run), NOT_RUN) for run in runs] for name in names]
            yield f"| {case['name']} | {' | '.join(cell(one, key, digits) for key, digits in keys for one in of)} |"

    keys = [("p50", 2), ("p99", 2), ("cpu", 1), ("rss", 0)]
    paced = [f"paced{number}" for number in range(ROUNDS)]
    lines += rows(paced, keys)
    if options.alone:
        lines += ["", "## The same without a broker", "",
            "The client of bookies that Pharos has, by itself (`crates/bookkeeper/examples/paced.rs`): as many bytes a second in as many ledgers,",
            "in bursts each millisecond, before the brokers in each round. No broker on these bookies can answer sooner than they do.", "",
            "| case | p50 ms | p99 ms | half of Pulsar's p99 | CPU s of 7 | a quarter of Pulsar's CPU s of 9 |", "|---|---:|---:|---:|---:|---:|",
        ]
        for case, found in results:
            alone, pulsar = [[found.get((name, run), NOT_RUN) for run in paced] for name in (ALONE, "Pulsar")]
            wanted = [cell([{key: one[key] * part} if key in one else one for one in pulsar], key, 2) for key, part in (("p99", 0.5), ("cpu", 0.25))]
            lines.append(f"| {case['name']} | {cell(alone, 'p50', 2)} | {cell(alone, 'p99', 2)} | {wanted[0]} | {cell(alone, 'cpu', 2)} | {wanted[1]} |")
    lines += ["", "## As fast as it goes", "",
        "| case | messages/s, Pharos | Pulsar | p50 ms, Pharos | Pulsar | p99 ms, Pharos | Pulsar | brokers' CPU s, Pharos | Pulsar | memory MB, Pharos | Pulsar |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += rows(["full"], [("rate", 0), *keys])
    failed = [f"- {case['name']}, {who}, {run}: {one['error']}" for case, found in results for (who, run), one in found.items() if "error" in one]
    if failed:
        lines += ["", "## What failed", "", *failed]
    settings = PULSAR_SETTINGS.format(zk="ZOOKEEPER", port="PORT", http="PORT").strip()
    lines += ["", "## Settings", "",
        "Pharos: `engine = bookkeeper`, two shards for each broker, three copies as the namespaces say; what is not named has its default.", "",
        "Pulsar, each broker:", "", "```", " ".join(PULSAR_JVM[:11]), settings, "```", "",
        "Bookies and ZooKeeper: " + f"`{' '.join(JAVA_MEASURED[:5])}`; bookies, beside what `tests/cluster/servers.py` says:", "", "```", *BOOKIES, "journalSyncData=true or false", "```", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pharos")
    parser.add_argument("jars")
    parser.add_argument("pulsar")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", default="docs/results/cluster-speed.md")
    parser.add_argument("--dir")
    parser.add_argument("--cases", default="")
    parser.add_argument("--alone")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(dir=options.dir, prefix="cluster-speed-")
    say = lambda line: print(line, file=sys.stderr, flush=True)
    run = Run(options.pharos)
    try:
        results, form = run_all(options, folder, say)
    except BaseException:
        for name in sorted(os.listdir(folder)):
            if name.endswith(".log"):
                with open(os.path.join(folder, name), errors="replace") as file:
                    say(f"---- {name}\n{''.join(file.readlines()[-15:])}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = page(results, form, options, run)
    with open(options.page, "w") as file:
        file.write(text)
    print(text)


main()
