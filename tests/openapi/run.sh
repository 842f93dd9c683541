#!/usr/bin/env bash
# Schemathesis asks a broker for every operation of openapi/admin.json, with values that fit the document and with values that do not.
# A status, a content type or a body that the document does not have fails, and so do 500 and a broker that ends.
#   run.sh PATH-OF-PHAROS
# Needs Python 3. PHAROS_TEST_CACHE (default $HOME/.cache/pharos-tests) keeps what was installed. The seed is fixed; about a minute.
# Prints "ok NAME" for each check; ends at the first that fails, with status 1.
set -euo pipefail
pharos=${1:?path of the pharos binary}
here="$(cd "$(dirname "$0")" && pwd)"
python="${PHAROS_TEST_CACHE:-$HOME/.cache/pharos-tests}/openapi-$(sha256sum < "$here/requirements.txt" | cut -c1-12)"
dir=$(mktemp -d)
broker=""
# shellcheck disable=SC2329
clean_up() {
    [ -z "$broker" ] || kill -KILL "$broker" 2> /dev/null || true
    rm -rf "$dir"
}
trap clean_up EXIT
fail() {
    echo "not ok: $*" >&2
    tail -n 20 "$dir"/broker.err >&2 || true
    exit 1
}

if [ ! -e "$python/installed" ]; then
    rm -rf "$python"
    python3 -m venv "$python"
    "$python/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt"
    touch "$python/installed"
fi

: > "$dir/broker.out"
"$pharos" serve --data-dir "$dir/data" --pulsar-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 --transactions-enabled=true \
    > "$dir/broker.out" 2> "$dir/broker.err" < /dev/null &
broker=$!
tries=0
until grep -q 'http://' "$dir/broker.out"; do
    [ $((tries += 1)) -lt 600 ] || fail "the broker does not listen"
    sleep 0.1
done
PHAROS_SERVICE_URL=$(grep -oE 'pulsar://[0-9.:]+' "$dir/broker.out" | head -n 1)
PHAROS_ADMIN_URL=$(grep -oE 'http://[0-9.:]+' "$dir/broker.out" | head -n 1)
export PHAROS_SERVICE_URL PHAROS_ADMIN_URL

things() { # what the names of schemathesis.toml name
    "$pharos" topics create persistent://public/default/events > /dev/null 2>&1 || true
    "$pharos" subscriptions create persistent://public/default/events s > /dev/null 2>&1 || true
    "$pharos" produce --repeat 20 persistent://public/default/events hello > /dev/null 2>&1 || true
}
ask() { # ask NAME EXAMPLES ARGUMENTS...
    local name=$1 examples=$2; shift 2
    (cd "$dir" && timeout 420 "$python/bin/schemathesis" --config-file "$here/schemathesis.toml" run "$here/../../openapi/admin.json" \
        --url "$PHAROS_ADMIN_URL" --seed 7 --max-examples "$examples" --phases coverage,fuzzing --request-timeout 30 --no-color \
        --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
        --suppress-health-check all "$@" > "$dir/out" 2>&1) || {
        sed -n '/= FAILURES =/,/= WARNINGS =/p' "$dir/out"
        tail -n 20 "$dir/out"
        fail "$name"
    }
    kill -0 "$broker" 2> /dev/null || fail "$name: the broker ended"
    echo "ok $name"
}

# Those that take away what the others ask about come last.
takes_away='terminate|/truncate|/namespaces/\{tenant\}/\{namespace\}$|/tenants/\{tenant\}$'
things
ask "operations that look and change" 5 --exclude-path-regex "$takes_away"
things
ask "operations that take away" 5 --include-path-regex "$takes_away"
kill -TERM "$broker"
wait "$broker" || fail "the broker ended with status $?"
broker=""
