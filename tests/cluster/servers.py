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


# How long the cluster waits for a broker that is not heard of, in seconds. Above the default: a busy machine may stand still for some.
SESSION = 15


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


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Server:
    """One process, which can be started again on the same port and data."""

    def __init__(self, name, folder, port, command):
        self.name, self.port, self.command = name, port, command
        self.log = os.path.join(folder, f"{name}.log")
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(f"{self.name} listens", self._listens, 60)

    def _listens(self):
        assert self.process.poll() is None, f"{self.name} ended: {self.tail()}"
        return accepts(self.port)

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
        with open(self.log, errors="replace") as log:
            return "".join(log.readlines()[-lines:])


class Broker(Server):
    """A broker of ours."""

    def __init__(self, number, pharos, folder, ports, settings):
        self.http = ports[1]
        command = [
            pharos, "serve", "--pulsar-listen", f"127.0.0.1:{ports[0]}", "--http-listen", f"127.0.0.1:{ports[1]}",
            "--shards", "2", "--log-format", "human", *settings,
        ]
        super().__init__(f"broker{number}", folder, ports[0], command)
        self.id = f"127.0.0.1:{ports[1]}"
        self.url = f"pulsar://127.0.0.1:{ports[0]}"

    def _listens(self):
        return super()._listens() and accepts(self.http)

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


class Cluster:
    """Everything, as a context: what still runs at its end is killed."""

    def __init__(self, pharos, jars, folder, bookies=3, brokers=2):
        ports = free_ports(1 + bookies + 2 * brokers)
        self.folder, self.zk_port = folder, ports.pop()
        java = [*JAVA, "-cp", f"{jars}/*"]
        self.java = java
        self.zookeeper = Server("zookeeper", folder, self.zk_port, [
            *java, "org.apache.zookeeper.server.ZooKeeperServerMain", self._zookeeper_settings(),
        ])
        self.bookies = []
        for number in range(1, bookies + 1):
            port = ports.pop()
            command = [*java, "org.apache.bookkeeper.server.Main", "--conf", self._bookie_settings(number, port)]
            self.bookies.append(Server(f"bookie{number}", folder, port, command))
        settings = [
            "--engine", "bookkeeper", "--metadata", f"zk:127.0.0.1:{self.zk_port}/pharos",
            "--bookkeeper-metadata-service-uri", f"zk+hierarchical://127.0.0.1:{self.zk_port}/ledgers",
            "--bookkeeper-max-frame-size", "5130KiB", "--metadata-session-timeout", f"{SESSION}s",
        ]
        self.brokers = [
            Broker(number, pharos, folder, [ports.pop(), ports.pop()], settings) for number in range(1, brokers + 1)
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

    @property
    def url(self):
        return "pulsar://" + ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def _file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def _zookeeper_settings(self):
        return self._file("zookeeper.cfg", "\n".join([
            "tickTime=2000", f"dataDir={self.folder}/zookeeper", f"clientPort={self.zk_port}",
            "clientPortAddress=127.0.0.1", "maxClientCnxns=0", "",
        ]))

    def _bookie_settings(self, number, port):
        data = os.path.join(self.folder, f"bookie{number}")
        os.makedirs(data)
        return self._file(f"bookie{number}.conf", "\n".join([
            f"bookiePort={port}", "advertisedAddress=127.0.0.1", "allowLoopback=true",
            f"metadataServiceUri=zk+hierarchical://127.0.0.1:{self.zk_port}/ledgers",
            f"journalDirectories={data}/journal", f"ledgerDirectories={data}/ledgers", f"indexDirectories={data}/ledgers",
            "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "dbStorage_writeCacheMaxSizeMb=32", "dbStorage_readAheadCacheMaxSizeMb=16",
            "dbStorage_rocksDB_blockCacheSize=8388608", "numAddWorkerThreads=1", "numReadWorkerThreads=1",
            "journalPreAllocSizeMB=4", "diskUsageThreshold=0.99", "diskUsageWarnThreshold=0.98",
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
