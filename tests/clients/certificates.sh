#!/usr/bin/env bash
# Makes an authority, a broker's certificate for 127.0.0.1 and a client's with openssl: certificates.sh DIR
# Leaves authority.pem, broker.pem, broker.key, client.pem and client.key in DIR. RSA and PKCS#8: what every client reads.
set -euo pipefail
dir=${1:?}
mkdir -p "$dir"
cd "$dir"

key() { openssl genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out "$1" 2> /dev/null; }
key authority.key
openssl req -x509 -new -key authority.key -days 7 -subj "/O=tests/CN=authority" -addext "basicConstraints=critical,CA:TRUE" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" -out authority.pem

# signed NAME COMMON-NAME EXTENSIONS
signed() {
    key "$1.key"
    openssl req -new -key "$1.key" -subj "/O=tests/CN=$2" -out "$1.csr"
    printf '%s\n' "basicConstraints=critical,CA:FALSE" "$3" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA authority.pem -CAkey authority.key -CAcreateserial -days 7 -extfile "$1.ext" -out "$1.pem" 2> /dev/null
    rm "$1.csr" "$1.ext"
}
signed broker broker $'subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth'
signed client vehicle-7 "extendedKeyUsage=clientAuth"
