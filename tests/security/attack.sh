#!/usr/bin/env bash
# The latency of clients with manners without and with an attack beside them, in turn, and what the broker has afterwards.
#   attack.sh PATH-OF-PHAROS [ROUNDS [BENCH-ARGUMENT...]]
# Needs python3, curl, jq, openssl, chrt. Ends with 1 unless the median p99 with the attack is within twice that beside `nothing`, the memory
# of the broker is within 512 MiB of before, nothing was lost or made, each attack came through, and a million lookups of nothing were
# answered. On machines of their own attackers would take no processor from the broker, so they run when nothing else wants to
# (ATTACK_PRIORITY). What they take all the same shows in the runs beside `nothing`: as many processes, as busy, that attack nothing. How
# the attack compares with `quiet`, without such processes, is told and not judged.
#   ATTACK_EACH=1       each attack by itself first (the names are those of hostile.py)
#   ATTACK_PROFILE=DIR  a profile of the broker (perf) in DIR for each run
set -euo pipefail
pharos=${1:?path of the pharos binary}
rounds=${2:-3}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- --consumers 2000 --connections 16 --size 1KB --rate 20 --messages 600 --warmup-messages 20
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
broker="" attack=""
# shellcheck disable=SC2329
clean_up() {
    [ -z "$attack" ] || kill -TERM "$attack" 2> /dev/null || true
    [ -z "$broker" ] || kill -KILL "$broker" 2> /dev/null || true
    rm -rf "$dir"
}
trap clean_up EXIT

"$pharos" token create-secret-key --output "$dir/secret"
token() { "$pharos" token create --secret-key "file://$dir/secret" --subject "$1" > "$dir/$1.token"; }
token admin
token load
token car
echo "ann:$(openssl passwd -6 'a good password')" > "$dir/people"
: > "$dir/out" > "$dir/counts"
"$pharos" serve --data-dir "$dir/data" --pulsar-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
    --authentication-enabled --authentication-providers token,basic --authentication-token-secret-key "file://$dir/secret" \
    --authentication-basic-auth-conf "$dir/people" --authorization-enabled --authorization-super-user-roles admin \
    --tls-self-signed --pulsar-listen-tls 127.0.0.1:0 --http-listen-tls 127.0.0.1:0 > "$dir/out" 2> "$dir/err" < /dev/null &
broker=$!
tries=0
until grep -q 'http://' "$dir/out" && grep -q 'https://' "$dir/out"; do
    kill -0 "$broker" && [ $((tries += 1)) -lt 600 ] || { cat "$dir/err" >&2; exit 1; }
    sleep 0.1
done
find_url() { grep -oE "$1://[0-9.:]+" "$dir/out" | head -n 1; }
port() { find_url "$1" | grep -oE '[0-9]+$'; }
http=$(find_url http)
ask() { curl -sf -H "Authorization: Bearer $(cat "$dir/admin.token")" "$http$1" "${@:2}"; }
grant() {
    ask "/admin/v2/namespaces/public/default/permissions/$1" -X POST -H 'Content-Type: application/json' -d "$2"
}
grant load '["produce","consume"]'
grant car '["consume"]'
resident() { awk '/^VmRSS/ { print $2 * 1024 }' "/proc/$broker/status"; }

measure() { # measure NAME BENCH-ARGUMENT...
    local name=$1 profile=""; shift
    if [ -n "${ATTACK_PROFILE:-}" ]; then
        perf record -q -F 499 -g -p "$broker" -o "$ATTACK_PROFILE/${name// /-}.perf" -- sleep 8 2> /dev/null &
        profile=$!
    fi
    "$pharos" bench broadcast --url "$(find_url pulsar)" --token-file "$dir/load.token" --broker-pid "$broker" --output json "$@" \
        > "$dir/json" 2> "$dir/bench.err" || { tail -n 20 "$dir/bench.err" >&2; exit 1; }
    [ -z "$profile" ] || wait "$profile"
    jq -r --arg name "$name" '[$name, .p50_ms, .p99_ms, .max_ms, .broker_us_per_delivery, .broker_rss_bytes, .lost] | map(. // "-") | @tsv' "$dir/json"
    jq -r .p99_ms "$dir/json" >> "$dir/$name"
    jq -r .lost "$dir/json" >> "$dir/lost"
}

begin() { # begin [ATTACK...]
    # shellcheck disable=SC2086
    CAR_TOKEN=$(cat "$dir/car.token") ADMIN_TOKEN=$(cat "$dir/admin.token") ${ATTACK_PRIORITY-chrt --idle 0} python3 "$here/hostile.py" 127.0.0.1 \
        "$(port pulsar)" "$(port 'pulsar[+]ssl')" "$(port http)" "$(port https)" "$@" > "$dir/attack" 2> "$dir/attack.err" &
    attack=$!
    until grep -qs attacking "$dir/attack"; do
        kill -0 "$attack" || { cat "$dir/attack.err" >&2; exit 1; }
        sleep 0.1
    done
}
tell() { # tell FILE: the attack ends, and FILE gets what it came to
    kill -TERM "$attack"
    wait "$attack" || true
    attack=""
    tail -n 1 "$dir/attack" >> "$1"
}

printf 'run\tp50_ms\tp99_ms\tmax_ms\tbroker_us_per_delivery\tbroker_rss\tlost\n'
measure "first" "$@"
before=$(resident)
if [ -n "${ATTACK_EACH:-}" ]; then
    for name in "CONNECTs without credentials" "bad passwords" "garbage" "oversize and malformed TLS" "half a CONNECT" \
        "half a TLS handshake" "slow HTTP" "slow HTTPS" "web page" "lookups of nothing"; do
        begin "$name"
        measure "$name" "$@"
        tell "$dir/alone"
        tail -n 1 "$dir/alone"
    done
fi
for ((round = 1; round <= rounds; round++)); do
    measure quiet "$@"
    begin nothing
    measure nothing "$@"
    tell /dev/null
    begin
    measure attacked "$@"
    if [ "$round" = "$rounds" ]; then
        # Until it has looked up a million names in all, if it is not through yet.
        earlier=$(jq -s 'map(."lookups of nothing") | add // 0' "$dir/counts")
        answered() { echo $((earlier + $(awk '/^lookups/ { last = $2 } END { print last + 0 }' "$dir/attack"))); }
        until [ "$(answered)" -ge "${ATTACK_LOOKUPS:-1000000}" ]; do
            kill -0 "$attack" "$broker" || { tail -n 20 "$dir/err" "$dir/attack.err" >&2; exit 1; }
            sleep 1
        done
    fi
    after=$(resident)
    tell "$dir/counts"
done
"$pharos" bench broadcast --url "$(find_url pulsar)" --token-file "$dir/load.token" --broker-pid "$broker" --output json "$@" > /dev/null 2>&1 \
    || { echo "not served after the attack" >&2; exit 1; }

jq -s 'reduce .[] as $round ({}; reduce ($round | to_entries[]) as $it (.; .[$it.key] += $it.value))' "$dir/counts" > "$dir/sums"
jq -r 'to_entries[] | "\(.value)\t\(.key)"' "$dir/sums"
ask /metrics | grep -E '^pharos_(connections_refused|entrance_failures)'
median() { sort -n "$1" | sed -n "$((rounds / 2 + 1))p"; }
made=$(ask /admin/v2/persistent/public/default | jq '[.[] | select(contains("none-"))] | length')
made=$((made + $(ask /admin/v2/clusters | jq '[.[] | select(contains("none"))] | length')))
failed=0
judge() { # judge WHAT CONDITION-OF-JQ
    if [ "$(jq -n "$2")" = true ]; then echo "ok $1"; else echo "not ok $1"; failed=1; fi
}
judge "median p99 within twice that beside busy processes that attack nothing: $(median "$dir/nothing") ms, attacked $(median "$dir/attacked") ms" \
    "$(median "$dir/attacked") <= 2 * $(median "$dir/nothing")"
echo "quiet $(median "$dir/quiet") ms: the attack makes it $(jq -n "$(median "$dir/attacked") / $(median "$dir/quiet") * 10 | round / 10") times as long"
judge "memory bounded: $((before >> 20)) MiB before, $((after >> 20)) MiB at the end of the attack" "$after - $before <= 536870912"
judge "nothing lost by clients with manners" "$(awk '{ sum += $1 } END { print sum + 0 }' "$dir/lost") == 0"
judge "nothing made by the attack: $made topics and clusters" "$made == 0"
judge "no web page let in" "$(jq '."web page let in" // 0' "$dir/sums") == 0 and $(jq '."web page refused" // 0' "$dir/sums") > 0"
for what in "CONNECTs without credentials" "bad passwords" "garbage" "oversize and malformed TLS" "half a CONNECT" "half a TLS handshake" "slow HTTP" "slow HTTPS"; do
    judge "came through: $what" "$(jq --arg what "$what" '.[$what] // 0' "$dir/sums") > 0"
done
judge "a million lookups of nothing" "$(jq '."lookups of nothing"' "$dir/sums") >= ${ATTACK_LOOKUPS:-1000000}"
exit "$failed"
