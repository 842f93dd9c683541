#!/usr/bin/env bash
# Tiered storage against a foreign S3 server: S3Proxy, which checks signatures and keeps each object as a file, so that a test can
# look at what is there, damage it and take it away. What is checked is in `the story` below.
#   run.sh PATH-OF-PHAROS
# Needs Java 17 and Maven. PHAROS_TEST_CACHE (default $HOME/.cache/pharos-tests) keeps the server's jar.
# Prints "ok NAME" for each check; ends at the first that fails, with status 1.
set -euo pipefail
pharos=${1:?path of the pharos binary}
version=2.6.0
cache="${PHAROS_TEST_CACHE:-$HOME/.cache/pharos-tests}/s3proxy-$version"
jar=$cache/s3proxy-$version-jar-with-dependencies.jar
key=AKIDPHAROSTEST secret=a-secret-of-the-test
topic=persistent://public/default/t
dir=$(mktemp -d)
objects=$dir/objects/bucket
broker="" server="" s3_port=0
# shellcheck disable=SC2329
clean_up() {
    [ -z "$broker" ] || kill -KILL "$broker" 2> /dev/null || true
    [ -z "$server" ] || kill -KILL "$server" 2> /dev/null || true
    rm -rf "$dir"
}
trap clean_up EXIT

fail() {
    echo "not ok: $*" >&2
    tail -n 20 "$dir"/*.out "$dir"/*.err >&2
    ls -l "$objects" >&2
    exit 1
}
# Waits until COMMAND succeeds; fails after two minutes.
await() { # await WHAT COMMAND...
    local what=$1 tries=0; shift
    until "$@"; do
        [ $((tries += 1)) -lt 1200 ] || fail "gave up waiting until $what"
        sleep 0.1
    done
}

install_server() {
    [ -e "$jar" ] && return
    mkdir -p "$cache"
    # Maven moves a file that it has whole.
    mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
        "-Dartifact=org.gaul:s3proxy:$version:jar:jar-with-dependencies" -DoutputDirectory="$cache"
}

start_server() { # the port is the system's choice the first time, and stays
    cat > "$dir/s3proxy.conf" <<END
s3proxy.authorization=aws-v2-or-v4
s3proxy.endpoint=http://127.0.0.1:$s3_port
s3proxy.identity=$key
s3proxy.credential=$secret
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir=$dir/objects
jclouds.identity=unused
jclouds.credential=unused
END
    cat > "$dir/logback.xml" <<END
<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%msg%n</pattern></encoder></appender>
<logger name="org.gaul.shaded.org.eclipse.jetty.server.AbstractConnector" level="INFO"/>
<logger name="ROOT" level="WARN"><appender-ref ref="out"/></logger></configuration>
END
    : > "$dir/server.out"
    java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Dlogback.configurationFile=$dir/logback.xml" -jar "$jar" \
        --properties "$dir/s3proxy.conf" > "$dir/server.out" 2> "$dir/server.err" < /dev/null &
    server=$!
    await "the S3 server listens" grep -qE '^Started .*127\.0\.0\.1:[0-9]+' "$dir/server.out"
    s3_port=$(grep -oE '127\.0\.0\.1:[0-9]+' "$dir/server.out" | head -n 1 | cut -d : -f 2)
}
stop_server() { kill -KILL "$server"; wait "$server" 2> /dev/null || true; server=""; }

start_broker() { # start_broker SECRET
    : > "$dir/broker.out"
    AWS_ACCESS_KEY_ID=$key AWS_SECRET_ACCESS_KEY=$1 "$pharos" serve --data-dir "$dir/data" \
        --pulsar-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
        --ledger-max-entries 300 --ledger-min-rollover-time 0 --ledger-retention-check-interval 100ms \
        --offload-threshold-size 0 --offload-deletion-lag 0 --offload-max-block-size 5MiB \
        --offload-driver S3 --offload-s3-bucket bucket --offload-s3-endpoint "http://127.0.0.1:$s3_port" \
        > "$dir/broker.out" 2>> "$dir/broker.err" < /dev/null &
    broker=$!
    await "the broker listens" grep -q 'http://' "$dir/broker.out"
    PHAROS_SERVICE_URL=$(grep -oE 'pulsar://[0-9.:]+' "$dir/broker.out" | head -n 1)
    PHAROS_ADMIN_URL=$(grep -oE 'http://[0-9.:]+' "$dir/broker.out" | head -n 1)
    export PHAROS_SERVICE_URL PHAROS_ADMIN_URL
}
kill_broker() { kill -KILL "$broker"; wait "$broker" 2> /dev/null || true; broker=""; }

page() { python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())' "$PHAROS_ADMIN_URL$1"; }
metric() { page /metrics | awk -v name="$1" 'index($0, name) == 1 && $1 !~ /^#/ { print int($NF); exit }'; }
at_least() { [ "$(metric "$1")" -ge "$2" ]; }
# All ledgers but the one that is written are offloaded, and there are COUNT of them at least.
all_offloaded() { # all_offloaded COUNT
    page /admin/v2/persistent/public/default/t/internalStats | python3 -c '
import json, sys
closed = json.load(sys.stdin)["ledgers"][:-1]
sys.exit(not (len(closed) >= int(sys.argv[1]) and all(ledger["offloaded"] for ledger in closed)))' "$1"
}
# The broker keeps what is written now, and what the cursors and its own records need.
local_copies_are_gone() { [ "$(metric pharos_storage_ledgers)" -le 3 ]; }
objects_are() { [ "$(find "$objects" -type f | wc -l)" = "$1" ]; }
# Messages FROM to TO, 20 KB each, so that a full ledger has more than one part of 5 MiB.
messages() { # messages FROM TO
    python3 -c '
import hashlib, sys
for number in range(int(sys.argv[1]), int(sys.argv[2])):
    print(number, "".join(hashlib.sha512(b"%d %d" % (number, part)).hexdigest() for part in range(156)))' "$1" "$2"
}
publish() { messages "$1" "$2" | tee -a "$dir/sent" | "$pharos" produce "$topic" 2>> "$dir/clients.err"; }
# Reads everything under the subscription NAME and compares it with what was sent.
reads_back() { # reads_back NAME
    "$pharos" consume "$topic" --subscription "$1" --count "$(wc -l < "$dir/sent")" --idle 60 \
        > "$dir/received" 2>> "$dir/clients.err" || fail "$1 could not read"
    cmp "$dir/sent" "$dir/received" || fail "$1 read something else"
}
# A consumer of NAME gets no further than the object that was spoilt; WORDS stand in the broker's log then.
reports() { # reports NAME WORDS
    : > "$dir/broker.err"
    "$pharos" consume "$topic" --subscription "$1" --count 1 --idle 60 > "$dir/received" 2>> "$dir/clients.err" &
    local consumer=$!
    await "the log says: $2" grep -q "$2" "$dir/broker.err"
    kill -KILL "$consumer"; wait "$consumer" 2> /dev/null || true
    [ ! -s "$dir/received" ] || fail "$1 got a message of a ledger that is damaged"
}

# ---- the story -------------------------------------------------------------------------------------------------------------------
install_server > "$dir/install.out" 2>&1 || fail "S3Proxy could not be installed"
mkdir -p "$objects"
start_server
start_broker "$secret"
"$pharos" topics create "$topic"
for name in first damaged missing last; do "$pharos" subscriptions create "$topic" "$name"; done
publish 0 700
await "two ledgers are offloaded" all_offloaded 2
await "the local copies go" local_copies_are_gone
kill_broker
start_broker "$secret"
reads_back first
at_least pharos_offload_read_entries_total 300 || fail "it was not read from the S3 server"
find "$objects" -type f -size +5M | grep -q . || fail "no upload had several parts"
echo "ok offloaded in several parts, read back as it was sent after a kill"

first=$(page /admin/v2/persistent/public/default/t/internal-info | python3 -c '
import json, sys
ledger = json.load(sys.stdin)["ledgers"][0]
print("%s-ledger-%s" % (ledger["offloadedContextUuid"], ledger["ledgerId"]))')
cp -p "$objects/$first" "$dir/kept"
kill_broker
printf 'spoilt' | dd of="$objects/$first" bs=1 seek=10000 conv=notrunc status=none
start_broker "$secret"
reports damaged "$first in .* is damaged at byte"
kill_broker
rm "$objects/$first"
start_broker "$secret"
reports missing "$first is missing in"
cp -p "$dir/kept" "$objects/$first"
reads_back missing
echo "ok a damaged object and one that is not there are reported by name, and read again once they are whole"

kill_broker
start_broker "not the secret"
publish 700 1400
await "the server refuses" at_least brk_ledgeroffloader_offload_error 1
grep -q "SignatureDoesNotMatch\|403" "$dir/broker.err" || fail "the log does not say that the server refused"
kill_broker
start_broker "$secret"
reads_back damaged
await "what was refused is offloaded" all_offloaded 4
echo "ok wrong credentials are an error in the log and lose nothing"

stop_server
publish 1400 2100
await "an attempt fails" at_least brk_ledgeroffloader_offload_error 1
start_server
await "the next attempt succeeds" all_offloaded 6
await "the local copies go" local_copies_are_gone
kill_broker
start_broker "$secret"
reads_back last
echo "ok a server that is away for a while is waited for"

"$pharos" topics delete --force "$topic"
await "the objects go with their topic" objects_are 0
echo "ok a deleted topic leaves nothing behind"
kill -TERM "$broker"
wait "$broker"
broker=""
