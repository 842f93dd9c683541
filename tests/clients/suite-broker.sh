#!/usr/bin/env bash
# A broker as the test suites of the Go and Python clients want one: TLS, tokens, a password, certificates, an anonymous role, and the
# namespace private/auth for one role alone.  suite-broker.sh PHAROS CERTS SECRET DIR
# CERTS has the suite's broker-cert.pem, broker-key.pem and cacert.pem, SECRET is its key of tokens (of 32 bytes), DIR is made anew.
# The suites ask localhost at 6650, 6651, 8080 and 8443, so these are taken: run it in a network namespace of its own
# (`ip netns exec NAME`). Prints "ready", and runs until it is ended. What the suites pass: README.md.
set -euo pipefail
pharos="${1:?}" certs="${2:?}" secret="${3:?}" dir="${4:?}"
mkdir "$dir"
install -m 600 "$certs/broker-key.pem" "$dir/broker-key.pem"
# The suites' own file has the password as apr1, which is too weak to be taken.
(umask 077 && echo "admin:$(openssl passwd -6 123456)" > "$dir/people")
broker=""
# Only what was started here is ended.
trap '[ -z "$broker" ] || kill "$broker" 2> /dev/null || true' EXIT
"$pharos" serve --data-dir "$dir/data" --advertised-address localhost --max-message-size "${MESSAGE_SIZE:-1MiB}" \
    --pulsar-listen 127.0.0.1:6650 --http-listen 127.0.0.1:8080 --pulsar-listen-tls 127.0.0.1:6651 --http-listen-tls 127.0.0.1:8443 \
    --transactions-enabled=true --policies-backlog-quota-check-interval 5s --key-shared-consistent-hashing=false --tls-certificate-file "$certs/broker-cert.pem" --tls-key-file "$dir/broker-key.pem" --tls-trust-certs-file "$certs/cacert.pem" \
    --authentication-enabled=true --authentication-providers=tls,token,basic --authentication-anonymous-user-role=anonymous \
    --authentication-token-secret-key="file://$secret" --authentication-basic-auth-conf="$dir/people" \
    --authorization-enabled=true --authorization-super-user-roles=localhost,superUser,admin > "$dir/doors" 2> "$dir/log" &
broker=$!
until grep -q https:// "$dir/doors"; do kill -0 "$broker"; sleep 0.1; done
token=$("$pharos" token create --secret-key "file://$secret" --subject superUser)
ask() {
    curl -sS --fail-with-body -o "$dir/answer" -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \
        -X "$1" "http://localhost:8080/admin/v2/$2" -d "$3" || { cat "$dir/answer" >&2; exit 1; }
}
ask POST tenants/public '{"adminRoles":["anonymous"],"allowedClusters":["standalone"]}'
ask PUT namespaces/public/default-2 '{"replication_clusters":["standalone"]}'
for namespace in default default-2; do ask POST "namespaces/public/$namespace/permissions/anonymous" '["produce","consume"]'; done
ask PUT tenants/private '{"adminRoles":[],"allowedClusters":["standalone"]}'
ask PUT namespaces/private/auth '{"replication_clusters":["standalone"]}'
ask POST namespaces/private/auth/permissions/token-principal '["produce","consume"]'
echo ready
wait "$broker"
