#!/usr/bin/env bash
# Three brokers on real servers, as in run.sh, restarted one after the other under load, as an upgrade does it. What happens is in
# rolling.py.
#   rolling.sh PATH-OF-PHAROS [PATH-OF-THE-NEXT-PHAROS]
# With a second binary each broker comes back as that one, and the brokers are mixed while it goes on.
# Prints "ok NAME" for each check; ends at the first that fails, with status 1.
set -euo pipefail
pharos=$(realpath "${1:?path of the pharos binary}")
next=$(realpath "${2:-$1}")
here="$(cd "$(dirname "$0")" && pwd)"
# shellcheck source=tests/cluster/install.sh
. "$here/install.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$python/bin/python" "$here/rolling.py" "$pharos" "$jars" "$dir" "$next"
