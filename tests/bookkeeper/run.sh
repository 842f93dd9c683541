#!/usr/bin/env bash
# Our BookKeeper client and ZooKeeper store on Apache's own servers, beside the Java client: starts them (tests/peers/bookkeeper.sh)
# and runs the tests of the crates `bookkeeper` and `zookeeper` that ask for them.
#   run.sh LOG-DIRECTORY
# Needs Java 17 with javac, Maven and Python 3.
set -uo pipefail
logs=${1:?directory for logs}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=$here/../peers/bookkeeper.sh
dir=$(mktemp -d)
# shellcheck disable=SC2329
clean_up() {
    "$peers" stop "$dir" || true
    mkdir -p "$logs" && cp -r "$dir/log" "$logs/bookkeeper-servers" 2> /dev/null
    rm -rf "$dir"
}
trap clean_up EXIT
rm -rf "$logs/bookkeeper-servers"

# Three hold a ledger, the fourth takes the place of one that is killed: without it the Java client cannot recover.
"$peers" start "$dir" 4 || exit 1
# shellcheck source=/dev/null
. "$dir/env"
javac -nowarn -d "$dir/classes" -cp "$BOOKKEEPER_CLASSPATH" "$here/Peer.java" || exit 1
export ZOOKEEPER_ADDRESS BOOKIES BOOKKEEPER_PEERS="$peers" BOOKKEEPER_DIR=$dir JAVA_PEER_CLASSPATH="$dir/classes:$BOOKKEEPER_CLASSPATH"
# One at a time: the laws look at all ledgers that there are, and one test kills a bookie.
cargo test -q --locked --workspace --test servers --test encrypted_servers --test real_bookies --test java -- --test-threads 1
