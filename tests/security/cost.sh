#!/usr/bin/env bash
# What TLS, authentication and authorization cost, side by side: the same load on a broker of each kind, in turn, as often as asked.
#   cost.sh PATH-OF-PHAROS [ROUNDS [BENCH-ARGUMENT...]]
# Without arguments of the bench: 10 KB to 20,000 consumers over 64 connections, as fast as it goes. The connections of 15,000 clients:
#   cost.sh target/release/pharos 3 --consumers 15000 --connections 15000 --size 1KB --rate 1 --messages 10
# Needs curl, jq. Prints a line for each run; `mb_per_s` is what consumers got, `connect_s` how long all took to come. At the
# end what authorization costs and what TLS leaves, by medians.
set -euo pipefail
pharos=${1:?path of the pharos binary}
rounds=${2:-3}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- --consumers 20000 --connections 64 --size 10KB --rate 1000 --messages 60 --warmup-messages 5 --drain 120s
dir=$(mktemp -d)
broker=""
# shellcheck disable=SC2329
clean_up() {
    [ -z "$broker" ] || kill -KILL "$broker" 2> /dev/null || true
    rm -rf "$dir"
}
trap clean_up EXIT

# The certificate and the tokens are made once.
"$pharos" token create-secret-key --output "$dir/secret"
for role in root load; do
    "$pharos" token create --secret-key "file://$dir/secret" --subject "$role" > "$dir/$role.token"
done

start() { # start KIND
    local settings=(--data-dir "$dir/data" --pulsar-listen 127.0.0.1:0 --http-listen 127.0.0.1:0)
    case $1 in *tls*) settings+=(--tls-self-signed --pulsar-listen-tls 127.0.0.1:0 --http-listen-tls 127.0.0.1:0) ;; esac
    case $1 in *token*) settings+=(--authentication-enabled --authentication-providers token --authentication-token-secret-key "file://$dir/secret") ;; esac
    case $1 in *authorization*) settings+=(--authorization-enabled --authorization-super-user-roles root) ;; esac
    rm -rf "$dir/data"
    : > "$dir/out"
    "$pharos" serve "${settings[@]}" > "$dir/out" 2> "$dir/err" < /dev/null &
    broker=$!
    local tries=0
    until grep -q 'http://' "$dir/out"; do
        kill -0 "$broker" && [ $((tries += 1)) -lt 600 ] || { cat "$dir/err" >&2; exit 1; }
        sleep 0.1
    done
    case $1 in *authorization*)
        curl -sf -X POST -H "Authorization: Bearer $(cat "$dir/root.token")" -H 'Content-Type: application/json' -d '["produce","consume"]' \
            "$(grep -oE 'http://[0-9.:]+' "$dir/out" | head -n 1)/admin/v2/namespaces/public/default/permissions/load" ;;
    esac
}

run() { # run KIND BENCH-ARGUMENT...
    local kind=$1 scheme=pulsar more=(); shift
    case $kind in *tls*) scheme='pulsar[+]ssl'; more+=(--tls-trust-certs "$dir/data/tls/certificate.pem" --tls-insecure-skip-hostname-verify) ;; esac
    case $kind in *token*) more+=(--token-file "$dir/load.token") ;; esac
    "$pharos" bench broadcast --url "$(grep -oE "$scheme://[0-9.:]+" "$dir/out" | head -n 1)" --broker-pid "$broker" --output json \
        "${more[@]}" "$@" > "$dir/json" 2> "$dir/bench.err" || { tail -n 20 "$dir/bench.err" >&2; exit 1; }
    jq -r '.deliveries_per_second * .message_bytes / 1e6' "$dir/json" >> "$dir/rate.$kind"
    jq -r '.broker_us_per_delivery' "$dir/json" >> "$dir/cpu.$kind"
    jq -r --arg kind "$kind" '[$kind, .deliveries_per_second, .deliveries_per_second * .message_bytes / 1e6, .p50_ms, .p99_ms, .max_ms,
        .connect_seconds, .broker_us_per_delivery, .broker_connect_cpu_seconds, .broker_rss_bytes, .lost] | map(. // "-") | @tsv' "$dir/json"
}

printf 'kind\tdeliveries_per_s\tmb_per_s\tp50_ms\tp99_ms\tmax_ms\tconnect_s\tbroker_us_per_delivery\tbroker_connect_cpu_s\tbroker_rss\tlost\n'
for ((round = 0; round < rounds; round++)); do
    for kind in plain token token+authorization tls tls+token+authorization; do
        start "$kind"
        run "$kind" "$@"
        kill -TERM "$broker"
        wait "$broker" || true
        broker=""
    done
done

# Medians. What differs by less than the rounds of one kind do says nothing: then more messages or rounds are needed.
median() { sort -n "$1" | sed -n "$((rounds / 2 + 1))p"; }
spread() { sort -n "$1" | jq -s '(.[-1] / .[0] - 1) * 100 | round'; }
cost=$(jq -n "($(median "$dir/cpu.token+authorization") / $(median "$dir/cpu.token") - 1) * 1000 | round / 10")
echo "authorization costs the broker $cost % of a delivery; rounds differ by $(spread "$dir/cpu.token") % without and $(spread "$dir/cpu.token+authorization") % with it"
echo "TLS carries $(jq -n "$(median "$dir/rate.tls") / $(median "$dir/rate.plain") * 100 | round") % of what goes plain; rounds of plain differ by $(spread "$dir/rate.plain") %"
