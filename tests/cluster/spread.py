"""Broadcast consumers of one topic at one broker, and dealt among two, in turn on the same servers. See spread.sh."""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile

from measured import Run, cpu_seconds, rss_mb
from scene import make_carried
from servers import JAVA_MEASURED, Cluster, Hosts, until

CONNECTIONS = 64
# What is told of each round: a key of the load program's result, the heading, and digits.
FIGURES = [
    ("connect_seconds", "connecting all, s", 2), ("avg_ms", "average, ms", 1), ("p50_ms", "p50, ms", 1), ("p99_ms", "p99, ms", 1),
    ("max_ms", "max, ms", 1), ("cpu", "brokers' CPU, s", 1), ("rss", "brokers' memory, MB", 0),
]


def measure(pharos, cluster, carriers, number, options):
    one, two = cluster.brokers
    topic = f"persistent://public/by{carriers}/news-{number}"
    assert until("it is owned", lambda: one.owner_of(topic)) == one.url
    until("the other one knows", lambda: two.owner_of(topic) == one.url)
    command = [pharos, "bench", "broadcast", "--url", one.url, "--topic", topic, "--consumers", str(options.consumers),
        "--connections", str(CONNECTIONS), "--size", "10KB", "--rate", "1", "--messages", str(options.messages), "--output", "json"]
    if carriers > 1:
        command += ["--carrier", two.url]
    began = cpu_seconds(cluster.brokers)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    said = json.loads(done.stdout)
    assert said["passed"], said
    said |= {"cpu": cpu_seconds(cluster.brokers) - began, "rss": rss_mb(cluster.brokers)}
    status, answer = one.ask("/admin/v2/" + topic.replace("://", "/") + "?force=true", "DELETE")
    assert status == 204, (status, answer)
    return said


def page(rounds, options, run):
    lines = [
        "# One topic's consumers at two brokers beside one", "",
        f"{options.consumers:,} consumers of one broadcast subscription share {CONNECTIONS} connections and get {options.messages} messages of 10 KB, one a second,",
        "which they acknowledge one by one. At *one* broker, or dealt among *two* (docs/broadcast-carriers.md), in turn; two brokers, three bookies that",
        "sync their journal, ZooKeeper and the load share the machine in both cases. Every delivery is checked: nothing lost, doubled, out of order or",
        "damaged. Latencies are from when a message was due until a consumer had it. Written by `tests/cluster/spread.sh`, not by hand.", "",
        *run.lines("Apache BookKeeper and ZooKeeper as in `tests/cluster/pom.xml`"),
        f"- command: `tests/cluster/spread.sh PHAROS --consumers {options.consumers} --rounds {options.rounds} --messages {options.messages}`", "",
        f"| brokers | round | {' | '.join(title for _, title, _ in FIGURES)} |", f"|---|---|{'---:|' * len(FIGURES)}",
    ]
    for carriers, name in ((1, "one"), (2, "two")):
        own = [found for of, found in rounds if of == carriers]
        for number, found in enumerate(own, 1):
            cells = [f"{found[key]:,.{digits}f}" for key, _, digits in FIGURES]
            lines.append(f"| {name} | {number} | {' | '.join(cells)} |")
        cells = [f"**{statistics.median(found[key] for found in own):,.{digits}f}**" for key, _, digits in FIGURES]
        lines.append(f"| {name} | median | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pharos")
    parser.add_argument("jars")
    parser.add_argument("--consumers", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--page", default="docs/results/carriers.md")
    parser.add_argument("--dir")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(dir=options.dir, prefix="spread-")
    run, hosts, rounds = Run(options.pharos), Hosts(options.pharos), []
    hosts.settings = ["--bookkeeper-ensemble-size=3", "--bookkeeper-write-quorum=3", "--bookkeeper-ack-quorum=2"]
    hosts.of_bookies, hosts.java = ["journalSyncData=true", "journalMaxGroupWaitMSec=1"], JAVA_MEASURED
    try:
        with Cluster(hosts, options.jars, folder) as cluster:
            for broker in cluster.brokers:
                broker.start()
            for carriers in (1, 2):
                make_carried(cluster, f"public/by{carriers}", carriers)
            for number in range(1, options.rounds + 1):
                for carriers in (1, 2):
                    found = measure(options.pharos, cluster, carriers, number, options)
                    rounds.append((carriers, found))
                    told = {key: found[key] for key, _, _ in FIGURES}
                    print(f"round {number}, at {carriers}: {told}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = page(rounds, options, run)
    with open(options.page, "w") as file:
        file.write(text)
    print(text)


main()
