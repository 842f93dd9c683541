"""The two clusters: a broker of Pharos, and Pulsar's standalone, each of which can be killed and started again."""

import json
import os
import subprocess
import urllib.error
import urllib.request

from servers import Server, accepts, until

OPENS = [
    "java.base/jdk.internal.loader", "java.base/java.lang", "java.base/java.io", "java.base/java.util.zip", "java.base/java.nio",
    "java.base/jdk.internal.misc", "java.base/sun.net", "java.base/jdk.internal.platform",
    "jdk.management/com.sun.management.internal",
]


class Peer(Server):
    """A cluster of one broker."""

    start_max = 120

    def __init__(self, cluster, folder, ports, command, admin):
        super().__init__(cluster, folder, "127.0.0.1", ports[0], command)
        self.cluster, self.http, self.folder = cluster, ports[1], folder
        self.url, self.admin_url = f"pulsar://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"
        self.tool = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{admin}/*", "org.apache.pulsar.admin.cli.PulsarAdminTool"]

    def _listens(self):
        return super()._listens() and accepts(self.host, self.http) and self.ask("/admin/v2/namespaces/public/default") is not None

    def ask(self, path):
        """The answer to a GET; None without one."""
        try:
            with urllib.request.urlopen(self.admin_url + path, timeout=10) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError):
            return None

    def admin(self, *words):
        """What stock pulsar-admin says."""
        config = os.path.join(self.folder, "client.conf")
        open(config, "a").close()
        command = [*self.tool, config, "--admin-url", self.admin_url, *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def replicates_to(self, other):
        clusters = f"{self.cluster},{other.cluster}"
        self.admin("clusters", "create", other.cluster, "--url", other.admin_url, "--broker-url", other.url)
        self.admin("tenants", "update", "public", "--allowed-clusters", clusters)
        self.admin("namespaces", "set-clusters", "public/default", "--clusters", clusters)

    def replication(self, topic, other):
        stats = self.ask(f"/admin/v2/persistent/public/default/{topic}/stats") or {}
        return stats.get("replication", {}).get(other.cluster, {})

    def has_sent_all(self, topic, other):
        def is_there():
            found = self.replication(topic, other)
            return found.get("connected") and found.get("replicationBacklog") == 0

        until(f"{self.cluster} has sent all of {topic}", is_there, 90)


class Pharos(Peer):
    def __init__(self, path, folder, ports, admin):
        command = [
            path, "serve", "--data-dir", os.path.join(folder, "pharos"), "--cluster-name", "pharos",
            "--pulsar-listen", f"127.0.0.1:{ports[0]}", "--http-listen", f"127.0.0.1:{ports[1]}",
            "--policies-deduplication=true", "--shards", "2",
            # Nothing of what is published has a subscription.
            "--ledger-default-retention-time", "1h", "--ledger-default-retention-size", "1GiB",
        ]
        super().__init__("pharos", folder, ports, command, admin)


class Pulsar(Peer):
    def __init__(self, jars, folder, ports, admin):
        home = os.path.join(folder, "pulsar")
        os.makedirs(home)
        settings = os.path.join(home, "standalone.conf")
        with open(settings, "w") as file:
            file.write("\n".join([
                "clusterName=pulsar", f"brokerServicePort={ports[0]}", f"webServicePort={ports[1]}", "bindAddress=127.0.0.1",
                "advertisedAddress=127.0.0.1", f"bookiePort={ports[2]}", "allowLoopback=true", "listeningInterface=lo", "advertiseAddress=127.0.0.1",
                "managedLedgerDefaultEnsembleSize=1", "managedLedgerDefaultWriteQuorum=1", "managedLedgerDefaultAckQuorum=1",
                "allowAutoTopicCreationType=non-partitioned", "brokerDeleteInactiveTopicsEnabled=false", "brokerDeduplicationEnabled=true",
                "defaultRetentionTimeInMinutes=60", "defaultRetentionSizeInMB=1000", "webSocketServiceEnabled=false", "loadBalancerEnabled=false", "backlogQuotaDefaultLimitGB=-1", "numIOThreads=2",
                "numHttpServerThreads=8", "httpServerEnabled=false", "diskUsageThreshold=0.98", "diskUsageWarnThreshold=0.97",
                "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage", "dbStorage_writeCacheMaxSizeMb=32",
                "dbStorage_readAheadCacheMaxSizeMb=16", "",
            ]))
        command = [
            "java", "-Xms128m", "-Xmx768m", "-XX:MaxDirectMemorySize=384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dio.netty.tryReflectionSetAccessible=true", "-Djava.net.preferIPv4Stack=true",
            *(f"--add-opens={module}=ALL-UNNAMED" for module in OPENS), "-cp", f"{jars}/*",
            "org.apache.pulsar.PulsarStandaloneStarter", "--config", settings, "--no-functions-worker", "--no-stream-storage",
            "--bookkeeper-dir", os.path.join(home, "bookie"), "--metadata-dir", os.path.join(home, "metadata"),
            "--bookkeeper-port", str(ports[2]), "-a", "127.0.0.1",
        ]
        super().__init__("pulsar", folder, ports, command, admin)
