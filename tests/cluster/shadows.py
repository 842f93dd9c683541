"""A topic at one broker and its shadows at another, on real servers. See run.sh.

Everything that is acknowledged by the source must come to the consumers of its shadow, in order, whichever broker is killed.
"""

import json
import signal
import sys
import time

import pulsar

from load import Publisher, Subscriber, everything_in, rises
from scene import TAKEOVER_MAX, both_serve, connect, ok
from servers import Cluster, Hosts, until

SOURCE = "persistent://public/source/news"
SHADOW = "persistent://public/shadow/news"
KINDS = [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared]


def path_of(topic):
    return "/admin/v2/" + topic.replace("://", "/")


def make(cluster):
    """The source at the first broker, its shadow at the second."""
    one, two = cluster.brokers
    for broker, namespace in [(one, "source"), (two, "shadow")]:
        path = f"/admin/v2/namespaces/public/{namespace}"
        assert broker.ask(path, "PUT", b"{}")[0] == 204
        # All of it is compared at the end.
        kept = b'{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'
        assert broker.ask(f"{path}/retention", "POST", kept)[0] == 204
        for other in cluster.brokers:
            until("the namespace is known", lambda: other.ask(path)[0] == 200)
    assert until("it is owned", lambda: one.owner_of(SOURCE)) == one.url
    status, reason = one.ask(path_of(SOURCE), "PUT", b"{}")
    assert status == 204, (status, reason)
    until("the source is known", lambda: two.ask(f"{path_of(SOURCE)}/properties")[0] == 200)
    assert until("it is owned", lambda: two.owner_of(SHADOW)) == two.url
    said = json.dumps({"PULSAR.SHADOW_SOURCE": SOURCE}).encode()
    status, reason = two.ask(path_of(SHADOW), "PUT", said)
    assert status == 204, (status, reason)
    until("the shadow is known", lambda: one.ask(f"{path_of(SHADOW)}/properties")[0] == 200)
    status, reason = one.ask(f"{path_of(SOURCE)}/shadowTopics", "PUT", json.dumps([SHADOW]).encode())
    assert status == 204, (status, reason)
    assert one.ask(f"{path_of(SOURCE)}/shadowTopics") == (200, [SHADOW])


def one_message_comes_at_once(cluster, client):
    producer = client.create_producer(SOURCE)
    consumer = client.subscribe(SHADOW, "first", initial_position=pulsar.InitialPosition.Latest)
    waits = []
    for number in range(20):
        sent = producer.send(f"{-20 + number} first".encode())
        began = time.monotonic()
        message = consumer.receive(timeout_millis=20_000)
        waits.append(time.monotonic() - began)
        place = lambda i: (i.ledger_id(), i.entry_id())
        assert place(message.message_id()) == place(sent), "the shadow has the source's ids"
        consumer.acknowledge(message)
    consumer.close()
    producer.close()
    try:
        client.create_producer(SHADOW)
        raise AssertionError("a shadow took a producer")
    except pulsar.PulsarException as error:
        assert "NotAllowed" in str(error), error
    waits.sort()
    ok("a single message comes to the shadow", f"{waits[10] * 1000:.1f} ms after its receipt, the longest {waits[-1] * 1000:.1f} ms")


def received(subscribers, publisher, count, what):
    """Waits until so many more messages came to all."""
    goal = max(publisher.receipts, default=0) + count
    until(what, lambda: all(goal in s.seen for s in subscribers), TAKEOVER_MAX)


def main():
    pharos, jars, folder = sys.argv[1:]
    with Cluster(Hosts(pharos), jars, folder) as cluster:
        both_serve(cluster)
        make(cluster)
        one, two = cluster.brokers
        client = connect(cluster.url)
        one_message_comes_at_once(cluster, client)
        publisher = Publisher(client, SOURCE)
        subscribers = []
        for number, kind in enumerate(KINDS):
            subscribers.append(Subscriber(client, SHADOW, kind, f"s{number}"))
        received(subscribers, publisher, 400, "messages come to the shadow")
        assert two.owner_of(SHADOW) == two.url and one.owner_of(SOURCE) == one.url
        ok("a shadow at another broker has what is published")

        two.send(signal.SIGKILL)
        two.process.wait()
        until("the first broker takes the shadow", lambda: one.owner_of(SHADOW) == one.url, TAKEOVER_MAX)
        received(subscribers, publisher, 400, "messages come after the shadow's broker died")
        ok("the shadow goes on when its broker is killed")

        two.start()
        until("it is there again", lambda: two.ask("/admin/v2/brokers/ready")[0] == 200)
        status, bundle = one.ask("/lookup/v2/topic/" + SHADOW.replace("://", "/") + "/bundle")
        bundle = bundle.strip('"')
        path = f"/admin/v2/namespaces/public/shadow/{bundle}/unload?destinationBroker={two.id}"
        status, reason = one.ask(path, "PUT")
        assert status == 204, (status, reason)
        until("it is taken", lambda: one.owner_of(SHADOW) == two.url)
        received(subscribers, publisher, 400, "messages come after the shadow moved")
        ok("a shadow is handed over")

        one.send(signal.SIGKILL)
        one.process.wait()
        until("the second broker takes the source", lambda: two.owner_of(SOURCE) == two.url, TAKEOVER_MAX)
        received(subscribers, publisher, 400, "messages come after the source's broker died")
        ok("the shadow goes on when the source's broker is killed")

        publisher.finish()
        assert not publisher.refused, publisher.refused
        log = everything_in(client, SOURCE)
        assert everything_in(client, SHADOW) == log, "the shadow has other messages than its source"
        for subscriber in subscribers:
            until("all came", lambda: subscriber.seen >= publisher.receipts.keys())
            subscriber.stop()
            if subscriber.kind != pulsar.ConsumerType.Shared:
                assert rises([n for n in subscriber.order if n >= 0]), "received out of order"
        ok("every receipt came to the shadow's consumers, in order",
           f"{len(publisher.receipts)} receipts, {sum(s.duplicates for s in subscribers)} received again")
        client.close()


main()
