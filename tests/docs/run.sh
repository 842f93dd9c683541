#!/usr/bin/env bash
# Runs the commands of documentation pages as a reader would, in a network and a process space of their own.
#   run.sh PATH-OF-PHAROS
# Prints "ok PAGE:LINE" for each block of commands and ends at the first that fails, with status 1; with status 77 where such a space
# is not permitted.
set -euo pipefail
pharos=$(realpath "${1:?path of the pharos binary}")
root="$(cd "$(dirname "$0")/../.." && pwd)"
alone=(unshare --net --pid --fork --mount-proc)
"${alone[@]}" ip link set lo up 2> /dev/null || {
    echo "no network namespace is permitted here: that takes root and iproute2"
    exit 77
}
# The official client, as installed for the tests of the clients.
cache="${PHAROS_TEST_CACHE:-$HOME/.cache/pharos-tests}"
venv="$cache/docs-$(sha256sum < "$root/tests/clients/python/requirements.txt" | cut -c1-12)"
if [ ! -e "$venv/installed" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: -r "$root/tests/clients/python/requirements.txt"
    touch "$venv/installed"
fi
# Pages call it by its name.
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
ln -s "$pharos" "$bin/pharos"
# Settings come from the pages alone.
for name in $(compgen -e | grep '^PHAROS_' || true); do unset "$name"; done
"${alone[@]}" sh -c 'ip link set lo up && exec "$@"' sh "$venv/bin/python" "$root/tests/docs/pages.py" "$bin/pharos" "$root" \
    docs/quickstart.md README.md
