#!/usr/bin/env bash
# Kills a broker with SIGKILL while consumers listen, two thousand unless told otherwise, starts it again on its data, and lets
# the load tool count: every consumer must have every message, in order; what comes twice is allowed.
#   restart.sh PATH-OF-PHAROS [CONSUMERS [SIZE [RATE [CONNECTIONS]]]]      the main job: 100000 10KB 1 64
set -euo pipefail
pharos=${1:?path of the pharos binary}
consumers=${2:-2000} size=${3:-1KB} rate=${4:-2} connections=${5:-16}
dir=$(mktemp -d)
broker="" bench=""
# Below the ports a system gives out by itself: a client that dials a closed one of those can reach itself.
port=$((20000 + RANDOM % 10000))
# shellcheck disable=SC2329
clean_up() {
    [ -z "$bench" ] || kill -KILL "$bench" 2> /dev/null || true
    [ -z "$broker" ] || kill -KILL "$broker" 2> /dev/null || true
    rm -rf "$dir"
}
trap clean_up EXIT

# Waits until COMMAND succeeds; fails after two minutes, or when the process PID is gone.
await() { # await PID COMMAND...
    local pid=$1 tries=0; shift
    until "$@"; do
        kill -0 "$pid" 2> /dev/null && [ $((tries += 1)) -lt 1200 ] || { echo "gave up waiting for: $*" >&2; show; return 1; }
        sleep 0.1
    done
}
show() { tail -n 30 "$dir"/*.out "$dir"/*.err >&2; }

start() {
    : > "$dir/broker.out"
    "$pharos" serve --data-dir "$dir/data" --pulsar-listen "127.0.0.1:$port" --http-listen 127.0.0.1:0 \
        > "$dir/broker.out" 2>> "$dir/broker.err" < /dev/null &
    broker=$!
    await "$broker" grep -q 'http://' "$dir/broker.out"
}

start
"$pharos" bench broadcast --url "pulsar://127.0.0.1:$port" --reconnect --consumers "$consumers" --connections "$connections" \
    --size "$size" --rate "$rate" --messages 20 --warmup-messages 2 > "$dir/bench.out" 2> "$dir/bench.err" < /dev/null &
bench=$!
await "$bench" grep -qE "^sent [1-9]" "$dir/bench.err"
kill -KILL "$broker"
wait "$broker" 2> /dev/null || true
start
if wait "$bench"; then status=0; else status=$?; fi
bench=""
cat "$dir/bench.out"
[ "$status" = 0 ] || show
kill -TERM "$broker"
wait "$broker"
broker=""
exit "$status"
