"""The processes of a cluster on loopback: ZooKeeper, bookies, brokers. All end with this one."""

import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

# A scale that fits a small machine: nothing here is about speed.
JAVA = [
    "java", "-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.admin.enableServer=false", "-Dio.netty.tryReflectionSetAccessible=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
]

# The same for what is about speed: the Java runtime compiles as it does by itself, and bookies have room for its caches.
JAVA_MEASURED = ["java", "-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseG1GC", *JAVA[6:]]


# How long the cluster waits for a broker that is not heard of, in seconds. Above the default, which is 6: a busy machine may stand still for some.
SESSION = int(os.environ.get("CLUSTER_SESSION", "15"))


def until(what, is_so, seconds=60):
    """Waits for a condition; fails when it does not come."""
    end = time.monotonic() + seconds
    while True:
        found = is_so()
        if found:
            return found
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


def free_ports(count):
    """Ports that are free now, all different; none that the system gives to a socket that connects, as servers come back to them."""
    sockets = []
    while len(sockets) < count:
        try:
            sockets.append(socket.create_server(("127.0.0.1", random.randrange(10_000, 32_000))))
        except OSError:
            continue
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def accepts(host, port):
    try:
        socket.create_connection((host, port), 1).close()
        return True
    except OSError:
        return False


def tail(path, lines):
    """The last lines of a file."""
    with open(path, errors="replace") as file:
        return "".join(file.readlines()[-lines:])


class Server:
    """One process, which can be started again on the same port and data."""

    # How long a start may take, in seconds.
    start_max = 60

    def __init__(self, name, folder, host, port, command):
        self.name, self.host, self.port, self.command = name, host, port, command
        self.log = os.path.join(folder, f"{name}.log")
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(f"{self.name} listens", self._listens, self.start_max)

    def _listens(self):
        assert self.process.poll() is None, f"{self.name} ended: {self.tail()}"
        return accepts(self.host, self.port)

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.send(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def stop(self, seconds=60):
        self.send(signal.SIGTERM)
        status = self.process.wait(seconds)
        self.process = None
        return status

    def tail(self, lines=30):
        return tail(self.log, lines)


class Broker(Server):
    """A broker of ours."""

    def __init__(self, number, pharos, folder, host, ports, settings):
        self.http = ports[1]
        command = [
            *pharos, "serve", "--pulsar-listen", f"{host}:{ports[0]}", "--http-listen", f"{host}:{ports[1]}",
            "--shards", "2", "--log-format", "human", *settings,
        ]
        super().__init__(f"broker{number}", folder, host, ports[0], command)
        self.id = f"{host}:{ports[1]}"
        self.url = f"pulsar://{host}:{ports[0]}"

    def _listens(self):
        return super()._listens() and accepts(self.host, self.http)

    def ask(self, path, method="GET", body=None):
        """Status and JSON of an admin request; follows no redirect."""
        request = urllib.request.Request(f"http://{self.id}{path}", method=method, data=body)
        request.add_header("content-type", "application/json")
        opener = urllib.request.build_opener(NoRedirect)
        try:
            with opener.open(request, timeout=20) as answer:
                text = answer.read().decode()
                return answer.status, json.loads(text) if text.startswith(("{", "[", '"')) else text
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("location") or error.read().decode()

    def owner_of(self, topic):
        """Who serves a topic, in this broker's eyes; takes it when none does."""
        status, found = self.ask("/lookup/v2/topic/" + topic.replace("://", "/"))
        return found["brokerUrl"] if status == 200 else None


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Hosts:
    """Where the processes are: addresses, and what a broker's command begins with."""

    def __init__(self, pharos):
        self.zookeeper, self.bookies, self.brokers = "127.0.0.1", ["127.0.0.1"] * 3, [("127.0.0.1", [pharos])] * 2
        self.settings = []
        # The broker that is asked takes what has no owner: a story can tell whose it is.
        self.balance = "false"
        # Further settings of the bookies, and of ZooKeeper.
        self.of_bookies, self.of_zookeeper = [], []
        # How ZooKeeper and bookies are started.
        self.java = JAVA


class Cluster:
    """Everything, as a context: what still runs at its end is killed."""

    def __init__(self, hosts, jars, folder):
        ports = free_ports(1 + len(hosts.bookies) + 2 * len(hosts.brokers))
        self.folder, self.hosts, self.zk_port = folder, hosts, ports.pop()
        self.zk = f"{hosts.zookeeper}:{self.zk_port}"
        java = [*hosts.java, "-cp", f"{jars}/*"]
        self.java = java
        self.zookeeper = Server("zookeeper", folder, hosts.zookeeper, self.zk_port, [
            *java, "org.apache.zookeeper.server.ZooKeeperServerMain", self._zookeeper_settings(),
        ])
        self.bookies = []
        for number, host in enumerate(hosts.bookies, 1):
            port = ports.pop()
            command = [*java, "org.apache.bookkeeper.server.Main", "--conf", self._bookie_settings(number, host, port)]
            self.bookies.append(Server(f"bookie{number}", folder, host, port, command))
        settings = [
            "--engine", "bookkeeper", "--metadata", f"zk:{self.zk}/pharos",
            "--bookkeeper-metadata-service-uri", f"zk+hierarchical://{self.zk}/ledgers",
            "--bookkeeper-max-frame-size", "5130KiB", "--metadata-session-timeout", f"{SESSION}s",
            f"--load-balancer-enabled={hosts.balance}", *hosts.settings,
        ]
        self.brokers = [
            Broker(number, pharos, folder, host, [ports.pop(), ports.pop()], settings)
            for number, (host, pharos) in enumerate(hosts.brokers, 1)
        ]

    def __enter__(self):
        self.zookeeper.start()
        self._format()
        for bookie in self.bookies:
            bookie.start()
        return self

    def __exit__(self, failed, *_):
        for server in [*self.brokers, *self.bookies, self.zookeeper]:
            if server.process is not None:
                server.send(signal.SIGKILL)
                server.process.wait()
            if failed and os.path.exists(server.log):
                print(f"---- {server.name}\n{server.tail(60 if server in self.brokers else 10)}", flush=True)
        clients = os.path.join(self.folder, "clients.log")
        if failed and os.path.exists(clients):
            print(f"---- clients\n{tail(clients, 120)}", flush=True)

    @property
    def url(self):
        return "pulsar://" + ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers)

    def _file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def _zookeeper_settings(self):
        return self._file("zookeeper.cfg", "\n".join([
            "tickTime=2000", f"dataDir={self.folder}/zookeeper", f"clientPort={self.zk_port}",
            f"clientPortAddress={self.hosts.zookeeper}", "maxClientCnxns=0", *self.hosts.of_zookeeper, "",
        ]))

    def _bookie_settings(self, number, host, port):
        data = os.path.join(self.folder, f"bookie{number}")
        os.makedirs(data, exist_ok=True)
        return self._file(f"bookie{number}.conf", "\n".join([
            # The first of two that say the same holds.
            *self.hosts.of_bookies,
            f"bookiePort={port}", f"advertisedAddress={host}", "allowLoopback=true",
            f"metadataServiceUri=zk+hierarchical://{self.zk}/ledgers",
            f"journalDirectories={data}/journal", f"ledgerDirectories={data}/ledgers", f"indexDirectories={data}/ledgers",
            "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "dbStorage_writeCacheMaxSizeMb=32", "dbStorage_readAheadCacheMaxSizeMb=16",
            "dbStorage_rocksDB_blockCacheSize=8388608", "numAddWorkerThreads=1", "numReadWorkerThreads=1",
            # A disk that is nearly full, as those of build machines are, has room enough for a test.
            "journalPreAllocSizeMB=4", "diskUsageThreshold=0.9999", "diskUsageWarnThreshold=0.9998",
            "minUsableSizeForIndexFileCreation=8388608", "minUsableSizeForEntryLogCreation=8388608",
            "minUsableSizeForHighPriorityWrites=8388608",
            "autoRecoveryDaemonEnabled=false", "httpServerEnabled=false",
            # Bookies stay registered while ZooKeeper is gone; without two of them no ledger can be made when it is back.
            "zkTimeout=30000",
            # As Pulsar sets it: room for the largest message and what is beside it.
            "nettyMaxFrameSizeBytes=5253120", "",
        ]))

    def _format(self):
        self.shell("initnewcluster")

    def shell(self, *words):
        """What BookKeeper's own tool answers."""
        command = [*self.java, "org.apache.bookkeeper.bookie.BookieShell", "-conf", f"{self.folder}/bookie1.conf", *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout + done.stderr
