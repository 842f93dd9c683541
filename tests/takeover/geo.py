"""A topic that is replicated to another cluster, by Pulsar's broker and Pharos in turn, on the same data. See run.sh.

The other cluster is a broker of Pharos by itself, which is away while each of them has something to send.
"""

import json
import os
import subprocess
import sys

import pulsar

from java import JavaBroker
from servers import Broker, Cluster, Hosts, free_ports, until

# One whose namespace says where it goes, and one whose own policies do.
TOPICS = ["persistent://public/geo/by-namespace", "persistent://public/own/by-topic"]
KEPT = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
COUNT = 700


def ok(name, detail=""):
    print(f"ok {name}{': ' + detail if detail else ''}", flush=True)


def path_of(topic):
    return "/admin/v2/" + topic.replace("://", "/")


def order(broker, method, path, body=None):
    status, reason = broker.ask(path, method, None if body is None else json.dumps(body).encode())
    assert status in (200, 204), (method, path, status, reason)


class Story:
    def __init__(self, java, pharos, west):
        self.java, self.pharos, self.west = java, pharos, west
        self.sent = 0

    def make(self):
        for broker, clusters in ((self.java, ["pc", "west"]), (self.west, ["west"])):
            if broker is self.java:
                order(broker, "PUT", "/admin/v2/clusters/west", {"serviceUrl": f"http://{self.west.id}", "brokerServiceUrl": self.west.url})
                order(broker, "POST", "/admin/v2/tenants/public", {"allowedClusters": clusters, "adminRoles": []})
            for name in ("geo", "own"):
                order(broker, "PUT", f"/admin/v2/namespaces/public/{name}", {"bundles": {"numBundles": 4}})
                order(broker, "POST", f"/admin/v2/namespaces/public/{name}/retention", KEPT)
        order(self.java, "POST", "/admin/v2/namespaces/public/geo/replication", ["pc", "west"])
        for topic in TOPICS:
            order(self.java, "PUT", path_of(topic), {})
        order(self.java, "POST", path_of(TOPICS[1]) + "/replication", ["pc", "west"])
        for topic in TOPICS:
            until("it is replicated", lambda: self.replication(self.java, topic).get("connected"), 120)

    def replication(self, broker, topic):
        status, stats = broker.ask(path_of(topic) + "/stats")
        return stats["replication"].get("west", {}) if status == 200 else {}

    def publish(self, broker):
        log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, os.path.join(sys.argv[3], "clients.log"))
        client = pulsar.Client(broker.url, operation_timeout_seconds=60, logger=log)
        for topic in TOPICS:
            results = []
            producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
            for number in range(self.sent, self.sent + COUNT):
                producer.send_async(str(number).encode(), lambda result, _: results.append(result), properties={"n": "p"})
            producer.flush()
            until("receipts", lambda: len(results) == COUNT)
            assert all(result == pulsar.Result.Ok for result in results), results[:3]
        client.close()
        self.sent += COUNT

    def arrives(self, broker, name):
        """The other cluster has all that was published: each message once, in order."""
        for topic in TOPICS:
            entries = lambda: self.west.ask(path_of(topic) + "/internalStats")[1]["numberOfEntries"]
            until("all is there", lambda: entries() >= self.sent, 120)
            # The figures are a moment old at Pulsar's broker.
            until("nothing is left", lambda: self.replication(broker, topic).get("replicationBacklog") == 0)
        log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, os.path.join(sys.argv[3], "clients.log"))
        client = pulsar.Client(self.west.url, logger=log)
        for topic in TOPICS:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            found = []
            while reader.has_message_available():
                message = reader.read_next(20_000)
                found.append(int(message.data()))
                assert message.properties()["n"] == "p"
            assert found == list(range(self.sent)), (topic, len(found), self.sent, found[:5])
        client.close()
        ok(name, f"{self.sent} messages in each of {len(TOPICS)} topics")

    def looked_at(self):
        """What `pharos cluster check` ends with."""
        command = [*self.pharos.program, "cluster", "check", "--metadata", f"zk:{self.pharos.zk}", "--cluster-name", "pc"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def node_of(self, topic):
        """The cursor, as the broker of Pulsar sees it."""
        return self.java.ask(path_of(topic) + "/internalStats")[1]["cursors"]["pulsar.repl.west"]

    def away(self, broker, kills):
        """The other cluster is away, and what is published waits. The broker ends."""
        self.west.stop()
        self.publish(broker)
        if kills:
            broker.kill()
        else:
            broker.stop()
        if broker is self.java:
            # Such topics are no obstacle; a broker that was killed is, until its session ends.
            until("nothing is in the way", lambda: self.looked_at().returncode == 0, 120)

    def pharos_serves(self):
        self.pharos.start()
        until("it is ready", lambda: self.pharos.ask("/admin/v2/brokers/ready")[0] == 200)
        # It asks for its topics by itself.
        self.west.start()

    def java_serves(self):
        self.java.start()
        self.west.start()
        for topic in TOPICS:
            # Which opens it.
            until("it is looked up", lambda: self.java.ask("/lookup/v2/topic/" + topic.replace("://", "/"))[0] == 200)
            until("it is open", lambda: self.java.ask(path_of(topic) + "/stats")[0] == 200)

    def tell(self):
        self.west.start()
        self.java.format()
        self.java.start()
        self.make()
        self.publish(self.java)
        self.arrives(self.java, "a broker of Pulsar replicates")
        for kills in (False, True):
            how = "was killed" if kills else "was stopped"
            self.away(self.java, kills)
            self.pharos_serves()
            self.arrives(self.pharos, f"Pharos sends what a broker of Pulsar had to send that {how}")
            self.publish(self.pharos)
            self.arrives(self.pharos, "and what comes after")
            self.away(self.pharos, kills)
            self.java_serves()
            self.arrives(self.java, f"a broker of Pulsar sends what Pharos had to send that {how}")
            self.publish(self.java)
            self.arrives(self.java, "and what comes after")
        for topic in TOPICS:
            place = self.node_of(topic)["markDeletePosition"]
            assert place == self.java.ask(path_of(topic) + "/internalStats")[1]["lastConfirmedEntry"], (topic, place)
        self.java.stop()
        self.west.stop()
        self.pharos_serves()
        self.west.stop()
        order(self.pharos, "POST", "/admin/v2/namespaces/public/geo/replication", ["pc"])
        cursors = lambda: self.pharos.ask(path_of(TOPICS[0]) + "/internalStats")[1]["cursors"]
        until("it is open", lambda: self.pharos.ask("/lookup/v2/topic/" + TOPICS[0].replace("://", "/"))[0] == 200)
        until("the cursor goes", lambda: "pulsar.repl.west" not in cursors())
        self.pharos.stop()
        self.java.start()
        until("it is open", lambda: self.java.ask(path_of(TOPICS[0]) + "/stats")[0] == 200)
        assert self.java.ask(path_of(TOPICS[0]) + "/internalStats")[1]["cursors"] == {}
        ok("what Pharos ends a broker of Pulsar does not begin again")


def main(pharos, jars, folder):
    hosts = Hosts(pharos)
    hosts.brokers = []
    with Cluster(hosts, jars, folder) as cluster:
        ports = free_ports(6)
        java = JavaBroker(cluster, jars, folder, ports[:2])
        settings = [
            "--engine", "bookkeeper", "--metadata", f"zk:{cluster.zk}", "--metadata-layout", "pulsar",
            "--bookkeeper-max-frame-size", "5130KiB", "--cluster-name", "pc", "--load-balancer-enabled=false",
            "--ledger-max-entries", "500", "--ledger-min-rollover-time", "0s", "--policies-delete-inactive-topics=false",
        ]
        ours = Broker("", [pharos], folder, "127.0.0.1", ports[2:4], settings)
        ours.program, ours.zk = [pharos], cluster.zk
        other = ["--data-dir", os.path.join(folder, "west"), "--cluster-name", "west", "--policies-deduplication=true"]
        west = Broker("-west", [pharos], folder, "127.0.0.1", ports[4:], other)
        servers = [java, ours, west]
        try:
            Story(java, ours, west).tell()
        except BaseException:
            for server in servers:
                if os.path.exists(server.log):
                    print(f"---- {server.name}\n{server.tail(80)}", flush=True)
            raise
        finally:
            for server in servers:
                if server.process is not None:
                    server.kill()


main(*sys.argv[1:])
