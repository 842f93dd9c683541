#!/usr/bin/env bash
# Pharos in place of Pulsar's own broker, and back: on the same ZooKeeper and bookies, each a process of its own on loopback, one broker
# stops and the other starts, and a checker outside compares every message and the place of every subscription. What happens is in story.py, and
# with a topic that is replicated to another cluster in geo.py.
#   run.sh PATH-OF-PHAROS
# Needs Java 17 or later, Maven and Python 3. PHAROS_TEST_CACHE (default $HOME/.cache/pharos-tests) keeps what was installed.
# Prints "ok NAME" for each check; ends at the first that fails, with status 1.
set -euo pipefail
pharos=${1:?path of the pharos binary}
here="$(cd "$(dirname "$0")" && pwd)"
# shellcheck source=tests/takeover/install.sh
. "$here/install.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/story" "$dir/geo"
for story in story geo; do
    PYTHONPATH="$here/../cluster" "$python/bin/python" "$here/$story.py" "$pharos" "$jars" "$dir/$story"
done
