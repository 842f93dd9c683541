#!/usr/bin/env bash
# One topic's broadcast consumers at one broker and dealt among two, in turn in one run, over three bookies. What is measured is in
# spread.py; it writes a page.
#   spread.sh PATH-OF-PHAROS [--consumers N] [--rounds N] [--messages N] [--page FILE] [--dir DIR]
# --dir: where bookies keep their files. Needs Java 17, Maven and Python 3, and a machine that has nothing else to do.
set -euo pipefail
pharos=$(realpath "${1:?path of the pharos binary}")
shift
here="$(cd "$(dirname "$0")" && pwd)"
# shellcheck source=tests/cluster/install.sh
. "$here/install.sh"
exec "$python/bin/python" "$here/spread.py" "$pharos" "$jars" "$@"
