"""A cluster that lets in who has the password: ZooKeeper and bookies ask by SASL, and only its own user may touch a node. See run.sh."""

import os
import subprocess
import sys

import pulsar

from scene import TAKEOVER_MAX, Load, connect, ok, serves
from servers import JAVA, Cluster, Hosts, until

# One user for all who share the nodes; a quote and a backslash show that they are told as they are.
USER, PASSWORD = "pharos", 'a "quiet" \\ word'
ASK = ["authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider", "sessionRequireClientSASLAuth=true"]


def jaas(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(text)
    return path


def guarded(pharos, folder):
    """Hosts whose servers ask, and whose brokers answer."""
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    known, own = f"user_{USER}={jaas(PASSWORD)};", f"username={jaas(USER)} password={jaas(PASSWORD)};"
    servers = write(folder, "servers.jaas", "".join(
        f"{section} {{ {module} {says} }};\n" for section, says in [("Server", known), ("Bookie", known), ("Client", own)]
    ))
    password = write(folder, "password", PASSWORD + "\n")
    hosts = Hosts(pharos)
    # Java's ZooKeeper has put DIGEST-MD5 aside since 3.9 unless it is told otherwise.
    hosts.java = [*JAVA, "-Dzookeeper.fips-mode=false", f"-Djava.security.auth.login.config={servers}"]
    hosts.of_zookeeper = ASK
    hosts.of_bookies = [
        "bookieAuthProviderFactoryClass=org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory",
        f"saslJaasClientAllowedIds={USER}", "zkEnableSecurity=true",
    ]
    hosts.settings = [
        f"--zookeeper-sasl-user={USER}", f"--zookeeper-sasl-password=file://{password}", "--zookeeper-acl=creator",
        f"--bookkeeper-sasl-user={USER}", f"--bookkeeper-sasl-password=file://{password}",
    ]
    return hosts


def with_settings(broker, **changed):
    """The command of a broker with other values, or without a setting where the value is None."""
    command = []
    for word in broker.command:
        name = word.split("=", 1)[0].removeprefix("--").replace("-", "_")
        if name not in changed:
            command.append(word)
        elif changed[name] is not None:
            command.append(f"{word.split('=', 1)[0]}={changed[name]}")
    return command


def does_not_start(broker, why, **changed):
    done = subprocess.run(with_settings(broker, **changed), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0, changed
    assert why in done.stdout + done.stderr, done.stdout + done.stderr


def zookeeper_says(cluster, jars, options, lines):
    """What ZooKeeper's own tool answers to some lines."""
    command = [*JAVA, *options, "-cp", f"{jars}/*", "org.apache.zookeeper.ZooKeeperMain", "-server", cluster.zk]
    asked = "".join(f"{line}\n" for line in [*lines, "quit"])
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout


def main():
    pharos, jars, folder = sys.argv[1:]
    hosts = guarded(pharos, folder)
    with Cluster(hosts, jars, folder) as cluster:
        one, two = cluster.brokers
        wrong = write(folder, "wrong", "another word")
        does_not_start(one, "zookeeper.sasl_user and zookeeper.sasl_password belong together", zookeeper_sasl_user=None)
        does_not_start(one, "cannot connect to ZooKeeper", zookeeper_sasl_password=f"file://{wrong}")
        does_not_start(
            one, "cannot connect to ZooKeeper", zookeeper_sasl_user=None, zookeeper_sasl_password=None, zookeeper_acl="open"
        )
        ok("a broker that ZooKeeper does not let in does not start, and says so")

        for broker in cluster.brokers:
            broker.start()
        load = Load(cluster)
        load.flows(100)
        lost = [p.topic for p in load.publishers if two.owner_of(p.topic) == one.url]
        assert lost, "the broker to kill owns nothing"
        one.kill()
        _, taken = serves(two, lost)
        assert taken < TAKEOVER_MAX, taken
        load.flows(100)
        one.start()
        load.end()
        ok("brokers serve and take over behind passwords")

        ours = ("/pharos/", "/ledgers/")
        listed = zookeeper_says(cluster, jars, hosts.java[-2:], ["ls -R /"])
        nodes = [line for line in listed.splitlines() if line.startswith(ours)]
        assert len(nodes) > 50, listed
        rights = zookeeper_says(cluster, jars, hosts.java[-2:], [f"getAcl {node}" for node in nodes])
        assert rights.count(f"'sasl,'{USER}\n: cdrwa\n") == len(nodes) and "'world" not in rights, rights
        listed = zookeeper_says(cluster, jars, [], ["ls -R /"])
        assert not any(line.startswith("/") for line in listed.splitlines()), listed
        ok("only the user of the cluster may read or write a node", f"{len(nodes)} nodes")

        two.stop()
        two.command = with_settings(two, bookkeeper_sasl_password=f"file://{wrong}")
        two.start()
        status, answer = two.ask("/admin/v2/namespaces/public/wrong", "PUT", b"{}")
        assert status == 204, answer
        assert two.owner_of("persistent://public/wrong/a") == two.url
        client = connect(two.url)
        try:
            client.create_producer("persistent://public/wrong/a", send_timeout_millis=5_000).send(b"none")
            raise AssertionError("a topic was written without the bookies' password")
        except pulsar.PulsarException:
            pass
        until("the log says why", lambda: "no login by sasl" in two.tail(200))
        client.close()
        ok("bookies do not let in who has another password, and the log says so")


if __name__ == "__main__":
    main()
