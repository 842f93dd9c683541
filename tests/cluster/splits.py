"""The network between a broker and the servers behind it loses every packet for a while, and what must hold. See splits.sh.

The first broker is in a network of its own, which a pair of virtual devices joins to that of everything else. To lose packets it gets a
route into a device that leads nowhere.
"""

import subprocess
import sys
import time

from scene import TAKEOVER_MAX, Load, both_serve, ok, serves
from servers import SESSION, Cluster, Hosts, until

APART = "apart"
# The first address of the device is where clients connect from.
CLIENTS = "10.231.0.1"
ZOOKEEPER, BOOKIES = "10.231.1.1", ["10.231.2.1", "10.231.2.2", "10.231.2.3"]
BROKERS = ["10.231.3.1", "10.231.3.2"]
# Longer than the time in which a bookie must answer (5 s).
PAUSE_MAX = SESSION


def run(command):
    subprocess.run(command.split(), check=True, stdin=subprocess.DEVNULL)


def in_apart(command):
    run(f"ip netns exec {APART} {command}")


def networks():
    run("ip link set lo up")
    run(f"ip netns add {APART}")
    run(f"ip link add near type veth peer name far netns {APART}")
    for address in [CLIENTS, ZOOKEEPER, *BOOKIES, BROKERS[1]]:
        run(f"ip address add {address}/16 dev near")
    run("ip link set near up")
    in_apart("ip link set lo up")
    in_apart(f"ip address add {BROKERS[0]}/16 dev far")
    in_apart("ip link set far up")
    in_apart("ip link add hole type veth peer name bottom")
    for end in ["hole", "bottom"]:
        in_apart(f"ip link set {end} up")


def cut(address):
    in_apart(f"ip neighbour replace {address} lladdr 02:00:00:00:00:01 dev hole")
    in_apart(f"ip route replace {address}/32 dev hole")


def heal(address):
    in_apart(f"ip route delete {address}/32 dev hole")


def owners_agree(cluster, load):
    for publisher in load.publishers:
        until("both know its owner", lambda: len({broker.owner_of(publisher.topic) for broker in cluster.brokers}) == 1)


def all_ready(cluster):
    for broker in cluster.brokers:
        until("it is ready", lambda: broker.ask("/admin/v2/brokers/ready")[0] == 200)


def one_bookie_is_cut_off(cluster, load):
    began = time.monotonic()
    cut(BOOKIES[0])
    load.flows(400)
    pause = load.longest_pause(began)
    assert pause < PAUSE_MAX, pause
    heal(BOOKIES[0])
    load.flows()
    ok("a bookie is cut off from a broker and writes go on", f"longest pause {pause:.2f} s")


def all_bookies_are_cut_off(cluster, load):
    one, two = cluster.brokers
    mine = [p for p in load.publishers if two.owner_of(p.topic) == one.url]
    others = [p for p in load.publishers if two.owner_of(p.topic) == two.url]
    assert mine and others, (len(mine), len(others))
    for bookie in BOOKIES:
        cut(bookie)
    # What is under way may still be answered; then nothing is, and the other broker does not mind.
    until("no receipts come", lambda: silent(mine))
    before = [p.answered() for p in others]
    until("the other broker goes on", lambda: all(p.answered() > b + 100 for p, b in zip(others, before)))
    assert silent(mine), "acknowledged without a bookie"
    for bookie in BOOKIES:
        heal(bookie)
    began = time.monotonic()
    load.flows(seconds=120)
    ok("all bookies are cut off from a broker and come back", f"receipts again after {time.monotonic() - began:.2f} s")


def silent(publishers):
    before = [p.answered() for p in publishers]
    time.sleep(2)
    return before == [p.answered() for p in publishers]


def zookeeper_is_cut_off(cluster, load):
    one, two = cluster.brokers
    mine = [p for p in load.publishers if two.owner_of(p.topic) == one.url]
    assert mine, "the broker to cut off owns nothing"
    began = time.monotonic()
    cut(ZOOKEEPER)
    _, taken = serves(two, [p.topic for p in mine])
    assert taken < TAKEOVER_MAX, taken
    # Who is connected to the broker that lost its topics finds the new owner although it is not told by ZooKeeper.
    load.flows(seconds=120)
    pause = load.longest_pause(began)
    heal(ZOOKEEPER)
    all_ready(cluster)
    owners_agree(cluster, load)
    load.flows()
    ok("a broker is cut off from ZooKeeper and the other one serves", f"after {taken:.2f} s; longest pause of a client {pause:.2f} s")


def main():
    pharos, jars, folder = sys.argv[1:]
    networks()
    hosts = Hosts(pharos)
    hosts.zookeeper, hosts.bookies = ZOOKEEPER, BOOKIES
    hosts.brokers = [(BROKERS[0], ["ip", "netns", "exec", APART, pharos]), (BROKERS[1], [pharos])]
    # These networks have no one else in them.
    hosts.settings = ["--allow-unauthenticated-listen"]
    with Cluster(hosts, jars, folder) as cluster:
        both_serve(cluster)
        load = Load(cluster)
        load.flows(100)
        one_bookie_is_cut_off(cluster, load)
        all_bookies_are_cut_off(cluster, load)
        zookeeper_is_cut_off(cluster, load)
        receipts, refused, twice, again = load.end()
        assert refused == 0, f"{refused} sends were refused"
        ok("every receipt is in its topic, in order", f"{receipts} receipts, {twice} entries twice, {again} received again")
        for broker in cluster.brokers:
            assert broker.stop() == 0
        ok("the brokers stop")


main()
