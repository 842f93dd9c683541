#!/usr/bin/env python3
"""Who and what of a cluster, over the admin API: made at one broker, found again at another, changed there, found at the first.

  facts.py make URL        at a broker of Apache Pulsar: tenant, namespace, policies, topics, schemas, policies of topics
  facts.py found URL       at Pharos on the same metadata: everything is there
  facts.py change URL      at Pharos: more of the same
  facts.py changed URL     at a broker of Apache Pulsar again: what was changed is there, and goes on
  facts.py last URL        at Pharos once more: what the broker of Apache Pulsar set last is there

URL is that of the web service, such as http://127.0.0.1:8080. Ends with 1 and says what is otherwise than expected.
"""

import json
import sys
import urllib.error
import urllib.request

TENANT, NAMESPACE = "facts", "facts/cars"
PLAIN, PARTS, MADE, GONE = (f"persistent/{NAMESPACE}/{name}" for name in ("plain", "parts", "made", "gone"))
# A namespace that Pharos makes, and a topic in it.
OTHER, VAN = f"{TENANT}/vans", f"persistent/{TENANT}/vans/first"
FIRST = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]}
SECOND = {"type": "record", "name": "A", "fields": FIRST["fields"] + [{"name": "b", "type": ["null", "string"], "default": None}]}
THIRD = {"type": "record", "name": "A", "fields": SECOND["fields"] + [{"name": "c", "type": ["null", "long"], "default": None}]}


class Broker:
    def __init__(self, url):
        self.url = url.rstrip("/") + "/admin/v2/"

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            sys.exit(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:400]}")

    def get(self, path):
        return self.ask("GET", path)

    def add_schema(self, topic, definition):
        body = {"type": "AVRO", "schema": json.dumps(definition), "properties": {"who": "facts"}}
        return self.ask("POST", f"schemas/{topic}/schema", body)["version"]["version"]


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found!r}, not {wanted!r}")
    print(f"{what}: {found!r}")


def schema_of(topic):
    return topic.removeprefix("persistent/")


def make(broker):
    cluster = next(name for name in broker.get("clusters") if name != "global")
    broker.ask("PUT", f"tenants/{TENANT}", {"allowedClusters": [cluster], "adminRoles": ["boss"]})
    broker.ask("PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 8}})
    broker.ask("POST", f"namespaces/{NAMESPACE}/retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100})
    broker.ask("POST", f"namespaces/{NAMESPACE}/messageTTL", 3600)
    broker.ask("POST", f"namespaces/{NAMESPACE}/permissions/alice", ["produce"])
    broker.ask("PUT", f"namespaces/{NAMESPACE}/0x20000000_0x40000000/split")
    broker.ask("PUT", PLAIN)
    broker.ask("PUT", f"{PARTS}/partitions", 3)
    expect("version of a schema", broker.add_schema(schema_of(PLAIN), FIRST), 0)
    expect("version of a schema", broker.add_schema(schema_of(PLAIN), SECOND), 1)
    broker.ask("POST", f"{PLAIN}/retention", {"retentionTimeInMinutes": 7, "retentionSizeInMB": 9})
    broker.ask("POST", f"{PLAIN}/maxProducers", 5)
    broker.ask("POST", f"{PARTS}/maxConsumers", 12)
    broker.ask("PUT", GONE)
    broker.ask("POST", f"{GONE}/maxProducers", 4)
    broker.ask("POST", f"{GONE}/maxConsumers?isGlobal=true", 4)


def found(broker):
    expect("administrators of the tenant", broker.get(f"tenants/{TENANT}")["adminRoles"], ["boss"])
    policies = broker.get(f"namespaces/{NAMESPACE}")
    expect("bundles", policies["bundles"]["numBundles"], 9)
    expect("TTL", broker.get(f"namespaces/{NAMESPACE}/messageTTL"), 3600)
    expect("grants", broker.get(f"namespaces/{NAMESPACE}/permissions"), {"alice": ["produce"]})
    names = [f"{PARTS}-partition-{index}".replace("/", "://", 1) for index in range(3)]
    topics = broker.get(f"namespaces/{NAMESPACE}/topics")
    expect("topics", sorted(topics), sorted([*names, *(name.replace("/", "://", 1) for name in (PLAIN, GONE))]))
    expect("partitions", broker.get(f"{PARTS}/partitions")["partitions"], 3)
    versions = broker.get(f"schemas/{schema_of(PLAIN)}/schemas")["getSchemaResponses"]
    expect("versions of schemas", [version["version"] for version in versions], [0, 1])
    expect("the first schema", json.loads(versions[0]["data"]), FIRST)
    expect("retention of a topic", broker.get(f"{PLAIN}/retention")["retentionSizeInMB"], 9)
    expect("producers of a topic", broker.get(f"{PLAIN}/maxProducers"), 5)
    expect("consumers of a partitioned topic", broker.get(f"{PARTS}/maxConsumers"), 12)
    expect("consumers of a topic in all clusters", broker.get(f"{GONE}/maxConsumers?isGlobal=true"), 4)


def change(broker):
    broker.ask("POST", f"namespaces/{NAMESPACE}/messageTTL", 1800)
    broker.ask("PUT", f"{MADE}/partitions", 2)
    expect("version of a schema", broker.add_schema(schema_of(PLAIN), SECOND), 1)
    expect("version of a schema", broker.add_schema(schema_of(PLAIN), THIRD), 2)
    expect("version of a schema", broker.add_schema(schema_of(MADE), FIRST), 0)
    broker.ask("POST", f"{PLAIN}/maxProducers", 6)
    broker.ask("POST", f"{PLAIN}/backlogQuota?backlogQuotaType=message_age", {"limitTime": 300, "policy": "producer_exception"})
    broker.ask("DELETE", f"{PARTS}/maxConsumers")
    broker.ask("POST", f"{PARTS}/maxProducers?isGlobal=true", 9)
    broker.ask("POST", f"{MADE}/subscriptionTypesEnabled", ["Shared", "Key_Shared"])
    broker.ask("DELETE", GONE)
    broker.ask("PUT", f"namespaces/{OTHER}")
    broker.ask("PUT", VAN)
    broker.ask("POST", f"{VAN}/maxSubscriptionsPerTopic", 3)
    expect("policies that were set", policies_of_topics(broker), CHANGED)


# What holds after `change`.
CHANGED = [6, 9, "producer_exception", None, 9, ["Key_Shared", "Shared"], 3]


def policies_of_topics(broker):
    quota = broker.get(f"{PLAIN}/backlogQuotaMap").get("message_age", {})
    return [
        broker.get(f"{PLAIN}/maxProducers"), broker.get(f"{PLAIN}/retention")["retentionSizeInMB"], quota.get("policy"),
        broker.get(f"{PARTS}/maxConsumers"), broker.get(f"{PARTS}/maxProducers?isGlobal=true"),
        sorted(broker.get(f"{MADE}/subscriptionTypesEnabled")), broker.get(f"{VAN}/maxSubscriptionsPerTopic"),
    ]


def changed(broker):
    expect("TTL", broker.get(f"namespaces/{NAMESPACE}/messageTTL"), 1800)
    expect("retention", broker.get(f"namespaces/{NAMESPACE}/retention")["retentionSizeInMB"], 100)
    expect("grants", broker.get(f"namespaces/{NAMESPACE}/permissions"), {"alice": ["produce"]})
    expect("bundles", broker.get(f"namespaces/{NAMESPACE}")["bundles"]["numBundles"], 9)
    expect("partitions", broker.get(f"{MADE}/partitions")["partitions"], 2)
    versions = broker.get(f"schemas/{schema_of(PLAIN)}/schemas")["getSchemaResponses"]
    expect("versions of schemas", [version["version"] for version in versions], [0, 1, 2])
    expect("the third schema", json.loads(versions[2]["data"]), THIRD)
    expect("the schema of another topic", json.loads(broker.get(f"schemas/{schema_of(MADE)}/schema")["data"]), FIRST)
    expect("policies of topics", policies_of_topics(broker), CHANGED)
    broker.ask("PUT", GONE)
    expect("policies of a topic that was deleted", [broker.get(f"{GONE}/maxProducers"), broker.get(f"{GONE}/maxConsumers?isGlobal=true")], [None, None])
    broker.ask("POST", f"{PLAIN}/maxProducers", 7)
    broker.ask("POST", f"{VAN}/messageTTL?messageTTL=60")


def last(broker):
    expect("policies of topics", policies_of_topics(broker), [7, *CHANGED[1:]])
    expect("TTL of a topic", broker.get(f"{VAN}/messageTTL"), 60)


STEPS = {step.__name__: step for step in (make, found, change, changed, last)}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in STEPS:
        sys.exit(__doc__)
    STEPS[sys.argv[1]](Broker(sys.argv[2]))
