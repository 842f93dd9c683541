#!/usr/bin/env bash
# The latency of clients with manners without and with an attack beside them, in turn, and what the broker has afterwards.
#   attack.sh PATH-OF-PHAROS [ROUNDS [BENCH-ARGUMENT...]]
# Needs python3, curl, jq. The p99 with the attack should stay within twice that without; processors that the attackers take are
# missing to the broker, so leave it some.
set -euo pipefail
pharos=${1:?path of the pharos binary}
rounds=${2:-3}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- --consumers 2000 --connections 16 --size 1KB --rate 10 --messages 100 --warmup-messages 10
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
broker="" attack=""
# shellcheck disable=SC2329
clean_up() {
    [ -z "$attack" ] || kill -KILL "$attack" 2> /dev/null || true
    [ -z "$broker" ] || kill -KILL "$broker" 2> /dev/null || true
    rm -rf "$dir"
}
trap clean_up EXIT

: > "$dir/out"
"$pharos" serve --data-dir "$dir/data" --pulsar-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 --limits-max-connections-per-address 1000 \
    --tls-self-signed --pulsar-listen-tls 127.0.0.1:0 --http-listen-tls 127.0.0.1:0 > "$dir/out" 2> "$dir/err" < /dev/null &
broker=$!
tries=0
until grep -q 'http://' "$dir/out"; do
    kill -0 "$broker" && [ $((tries += 1)) -lt 600 ] || { cat "$dir/err" >&2; exit 1; }
    sleep 0.1
done
find_url() { grep -oE "$1://[0-9.:]+" "$dir/out" | head -n 1; }
port() { find_url "$1" | grep -oE '[0-9]+$'; }
http=$(find_url http)

measure() { # measure NAME BENCH-ARGUMENT...
    local name=$1; shift
    "$pharos" bench broadcast --url "$(find_url pulsar)" --broker-pid "$broker" --output json "$@" > "$dir/json" 2> "$dir/bench.err" \
        || { tail -n 20 "$dir/bench.err" >&2; exit 1; }
    jq -r --arg name "$name" '[$name, .p50_ms, .p99_ms, .max_ms, .broker_rss_bytes, .lost] | map(. // "-") | @tsv' "$dir/json"
    jq -r .p99_ms "$dir/json" >> "$dir/$name"
}

printf 'run\tp50_ms\tp99_ms\tmax_ms\tbroker_rss\tlost\n'
for ((round = 0; round < rounds; round++)); do
    measure quiet "$@"
    python3 "$here/hostile.py" 127.0.0.1 "$(port pulsar)" "$(port http)" "$(port 'pulsar[+]ssl')" > "$dir/attack" 2> /dev/null &
    attack=$!
    until grep -qs attacking "$dir/attack"; do sleep 0.1; done
    measure attacked "$@"
    kill -KILL "$attack"
    wait "$attack" 2> /dev/null || true
    attack=""
done
median() { sort -n "$1" | sed -n "$((rounds / 2 + 1))p"; }
echo "median p99: quiet $(median "$dir/quiet") ms, attacked $(median "$dir/attacked") ms"
echo "made by the attack: $(curl -sf "$http/admin/v2/persistent/public/default" | jq '[.[] | select(contains("none-"))] | length') topics"
curl -sf "$http/metrics" | grep -E '^pharos_(connections_refused|entrance_failures)'
