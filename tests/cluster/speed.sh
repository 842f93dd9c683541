#!/usr/bin/env bash
# Speed of a cluster beside Apache Pulsar's: three bookies, two brokers of Pharos and two of Pulsar on the same bookies, in turn in one
# run. What is measured is in speed.py; it writes a page.
#   speed.sh PATH-OF-PHAROS PEERS [--quick] [--page FILE] [--dir DIR] [--cases TEXT] [--alone PACED]
# PEERS: a folder into which `crates/bench-peers/install.sh PEERS pulsar` has put Apache Pulsar. --quick: seconds for each case, to see
# that it works. --dir: where bookies keep their files, on the disk that is to be measured. --cases: only those with this in their name.
# --alone: the example `paced` of the crate `bookkeeper` (`cargo build --release -p pharos-bookkeeper --example paced`), which measures what
# bookies take without a broker.
# Needs Java 17, Maven and Python 3. In the long form it takes about 20 minutes, on a machine that has nothing else to do.
set -euo pipefail
pharos=$(realpath "${1:?path of the pharos binary}")
peers=$(realpath "${2:?folder with Apache Pulsar}")
shift 2
here="$(cd "$(dirname "$0")" && pwd)"
[ -e "$peers/pulsar/version" ] || { echo "no Apache Pulsar in $peers: crates/bench-peers/install.sh $peers pulsar"; exit 1; }
# shellcheck source=tests/cluster/install.sh
. "$here/install.sh"
exec "$python/bin/python" "$here/speed.py" "$pharos" "$jars" "$peers/pulsar" "$@"
