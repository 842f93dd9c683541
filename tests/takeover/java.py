"""A broker of Pulsar on a cluster's servers."""

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


class JavaBroker(Server):
    """One, which can be started again."""

    def __init__(self, cluster, jars, folder, ports):
        self.http = ports[1]
        self.java = [
            "java", "-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dio.netty.tryReflectionSetAccessible=true", *(f"--add-opens={module}=ALL-UNNAMED" for module in OPENS), "-cp", f"{jars}/*",
        ]
        zk = f"zk:{cluster.zk}"
        self.setup = [
            *self.java, "org.apache.pulsar.PulsarClusterMetadataSetup", "--cluster", "pc", "--metadata-store", zk,
            "--configuration-metadata-store", zk,
            "--existing-bk-metadata-service-uri", f"zk+hierarchical://{cluster.zk}/ledgers",
            "--web-service-url", f"http://127.0.0.1:{ports[1]}", "--broker-service-url", f"pulsar://127.0.0.1:{ports[0]}",
        ]
        settings = os.path.join(folder, "java-broker.conf")
        with open(settings, "w") as file:
            file.write("\n".join([
                "clusterName=pc", f"metadataStoreUrl={zk}", f"configurationMetadataStoreUrl={zk}",
                f"bookkeeperMetadataServiceUri=zk+hierarchical://{cluster.zk}/ledgers",
                f"brokerServicePort={ports[0]}", f"webServicePort={ports[1]}", "bindAddress=127.0.0.1", "advertisedAddress=127.0.0.1",
                "managedLedgerDefaultEnsembleSize=2", "managedLedgerDefaultWriteQuorum=2", "managedLedgerDefaultAckQuorum=2",
                "managedLedgerMaxEntriesPerLedger=500", "managedLedgerMinLedgerRolloverTimeMinutes=0",
                "allowAutoTopicCreationType=non-partitioned", "brokerDeleteInactiveTopicsEnabled=false",
                "acknowledgmentAtBatchIndexLevelEnabled=true", "brokerDeduplicationEntriesInterval=20", "transactionCoordinatorEnabled=false",
                "backlogQuotaDefaultLimitGB=-1", "numIOThreads=2", "numHttpServerThreads=8", "",
            ]))
        command = [*self.java, "org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", settings]
        super().__init__("java-broker", folder, "127.0.0.1", ports[0], command)
        self.url = f"pulsar://127.0.0.1:{ports[0]}"

    def format(self):
        done = subprocess.run(self.setup, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    def start(self):
        super().start()
        until("the broker is ready", lambda: self.ask("/admin/v2/brokers/ready")[0] == 200, 120)

    def _listens(self):
        return super()._listens() and accepts(self.host, self.http)

    def ask(self, path, method="GET", body=None):
        """Status and JSON of an admin request."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}{path}", method=method, data=body)
        request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read().decode()
                return answer.status, json.loads(text) if text.startswith(("{", "[", '"')) else text
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)
