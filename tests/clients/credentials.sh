#!/usr/bin/env bash
# The official clients and stock pulsar-admin with a token, a password and OAuth2:  credentials.sh PHAROS ISSUER LOGS LANGS
# PHAROS and ISSUER are programs (the broker, and the example `issuer` of crates/identity). Tokens last four seconds, the broker looks
# every second, and each client listens for ten: it must show a new token on the same connection, and no message be lost or doubled.
# All of that over plain connections and over TLS; pulsar-admin with a certificate, too.
# Prints lines as run.sh does.
set -uo pipefail
HERE="$(cd "$(dirname "$0")" && pwd)"
PHAROS="${1:?}" ISSUER="${2:?}" LOGS="${3:?}" LANGS="${4:?}"
TOKEN_SECONDS=4 LISTEN_SECONDS=10
dir=$(mktemp -d)
running=()
# Only what was started here is ended.
trap 'for pid in "${running[@]}"; do kill "$pid" 2> /dev/null; done; wait; rm -rf "$dir"' EXIT
mkdir -p "$LOGS"

"$ISSUER" robot 'robot secret' "$TOKEN_SECONDS" > "$dir/issuer" 2> "$LOGS/issuer.log" &
running+=($!)
printf '%s' '{"type":"client_credentials","client_id":"robot","client_secret":"robot secret","client_email":"robot@example.com","issuer_url":"unused"}' > "$dir/robot.json"
"$PHAROS" token create-secret-key --output "$dir/secret"
# openssl passwd -6 -salt saltstring 'Hello world!'
printf '%s\n' 'ann:$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1' > "$dir/people"
"$HERE/certificates.sh" "$dir"
until [ -s "$dir/issuer" ]; do sleep 0.05; done
issuer=$(cat "$dir/issuer")

fresh() {
    "$PHAROS" token create --secret-key "file://$dir/secret" --subject car --expiry-time "${TOKEN_SECONDS}s" > "$dir/token.new" &&
        mv "$dir/token.new" "$dir/token"
}
fresh
while sleep 1; do fresh; done &
running+=($!)

env -u PHAROS_TEST_LANGS -u PHAROS_TEST_CACHE "$PHAROS" serve --transactions-enabled=true --data-dir "$dir/data" --pulsar-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
    --authentication-enabled=true --authentication-providers=token,openid,basic,tls --authentication-refresh-check-interval=1s \
    --authentication-token-secret-key="file://$dir/secret" --authentication-basic-auth-conf="$dir/people" \
    --openid-allowed-token-issuers="$issuer" --openid-allowed-audiences=pharos --openid-require-issuers-use-https=false \
    --pulsar-listen-tls 127.0.0.1:0 --http-listen-tls 127.0.0.1:0 --tls-certificate-file "$dir/broker.pem" --tls-key-file "$dir/broker.key" \
    --tls-trust-certs-file "$dir/authority.pem" \
    > "$dir/doors" 2> "$LOGS/broker.log" &
running+=($!)
until grep -q http:// "$dir/doors" && grep -q https:// "$dir/doors"; do kill -0 "${running[2]}" || exit 1; sleep 0.1; done
door() { grep -oE "$1://[0-9.:]+" "$dir/doors"; }
admin=$(door http)

export PHAROS_AUTH_TOKEN_FILE="$dir/token" PHAROS_AUTH_USER=ann PHAROS_AUTH_PASSWORD='Hello world!' PHAROS_AUTH_KEY_FILE="$dir/robot.json" \
    PHAROS_AUTH_ISSUER="$issuer" PHAROS_AUTH_AUDIENCE=pharos PHAROS_AUTH_SECONDS=$LISTEN_SECONDS
class=org.apache.pulsar.client.impl.auth
declare -A plugins=(
    [token]="$class.AuthenticationToken file://$dir/token"
    [basic]="$class.AuthenticationBasic {\"userId\":\"ann\",\"password\":\"Hello world!\"}"
    [oauth2]="$class.oauth2.AuthenticationOAuth2 {\"type\":\"client_credentials\",\"privateKey\":\"file://$dir/robot.json\",\"issuerUrl\":\"$issuer\",\"audience\":\"pharos\"}"
)
# How many connections the broker has let in.
connections() {
    python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1] + "/metrics").read().decode())' "$admin" |
        awk '/^pulsar_connection_create_success_count/ { sum += $NF } END { print sum + 0 }'
}

code=0
count=$(tr , '\n' <<< "$LANGS" | wc -l)
# clients_show KIND plain|tls
clients_show() {
    local kind=$1 how=$2 before runs=() arguments=() lang run made
    arguments=(--url "$(door pulsar)")
    [ "$how" = plain ] || arguments=(--url "$(door 'pulsar[+]ssl')" --tls-trust-certs "$dir/authority.pem")
    # A password does not expire.
    if [ "$kind" = basic ]; then export PHAROS_AUTH_SECONDS=2; else export PHAROS_AUTH_SECONDS=$LISTEN_SECONDS; fi
    export PHAROS_AUTH_PLUGIN="${plugins[$kind]}"
    before=$(connections)
    for lang in ${LANGS//,/ }; do
        "$HERE/run.sh" "${arguments[@]}" --admin "$admin" --only "$lang" --auth "$kind" --test credentials --logs "$LOGS/$kind-$how-$lang" \
            > "$dir/$kind-$how-$lang" 2>&1 &
        runs+=($!)
    done
    for run in "${runs[@]}"; do wait "$run" || code=1; done
    for lang in ${LANGS//,/ }; do sed "s/^\(ok\|not ok\) $lang /&$kind-$how-/" "$dir/$kind-$how-$lang"; done
    made=$(($(connections) - before))
    # A client that was let go and came back would have made more.
    if [ "$made" -gt $((2 * count)) ]; then
        echo "not ok clients $kind-$how-connections: $made were made"; code=1
    else
        echo "ok clients $kind-$how-connections"
    fi
}
for how in plain tls; do
    for kind in token basic oauth2; do clients_show "$kind" "$how"; done
done

# pulsar-admin, as it comes: it makes a topic and finds it.
admin_lib="${PHAROS_TEST_CACHE:-$HOME/.cache/pharos-tests}/java-admin-$(sha256sum < "$HERE/java/admin.xml" | cut -c1-12)"
if [[ ",$LANGS," == *,java,* ]]; then
    if [ ! -e "$admin_lib/installed" ]; then
        rm -rf "$admin_lib"
        mvn -q -B -f "$HERE/java/admin.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$admin_lib" > "$LOGS/admin-install.log" 2>&1 &&
            touch "$admin_lib/installed"
    fi
    : > "$dir/client.conf"
    plugins[certificate]="$class.AuthenticationTls tlsCertFile:$dir/client.pem,tlsKeyFile:$dir/client.key"
    # pulsar_admin URL ARGUMENT...
    pulsar_admin() {
        timeout 60 java -cp "$admin_lib/*" org.apache.pulsar.admin.cli.PulsarAdminTool "$dir/client.conf" --tls-trust-cert-path "$dir/authority.pem" \
            --tls-enable-hostname-verification --admin-url "$@" 2>> "$LOGS/admin.log"
    }
    for via in token-http basic-http oauth2-http token-https basic-https oauth2-https certificate-https; do
        kind=${via%-*} url=$(door "${via##*-}")
        with() { pulsar_admin "$url" --auth-plugin "${plugins[$kind]%% *}" --auth-params "${plugins[$kind]#* }" "$@"; }
        topic="persistent://public/default/by-$via"
        if with topics create "$topic" > /dev/null && with topics list public/default | grep -q "$topic"; then
            echo "ok java admin-$via"
        else
            echo "not ok java admin-$via: see $LOGS/admin.log"; code=1
        fi
    done
    for scheme in http https; do
        if pulsar_admin "$(door "$scheme")" topics list public/default > /dev/null; then
            echo "not ok java admin-none-$scheme: it got in"; code=1
        else
            echo "ok java admin-none-$scheme"
        fi
    done
fi
exit $code
