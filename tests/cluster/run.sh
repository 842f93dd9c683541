#!/usr/bin/env bash
# Two brokers on real servers: Apache ZooKeeper and three of Apache's bookies, each a process of its own on loopback. One server after
# the other is killed, stopped or paused under load, and a checker outside compares every receipt with what is in the topics.
# What happens is in story.py, with topics that are deduplicated and compacted in kept.py, with shadow topics in shadows.py, with broadcast consumers that are dealt among brokers in carriers.py,
# with topics that are replicated to another cluster in geo.py, and with servers that ask for passwords in guarded.py.
#   run.sh PATH-OF-PHAROS
# Needs Java 17, Maven and Python 3. PHAROS_TEST_CACHE (default $HOME/.cache/pharos-tests) keeps what was installed.
# Prints "ok NAME" for each check; ends at the first that fails, with status 1.
set -euo pipefail
pharos=${1:?path of the pharos binary}
here="$(cd "$(dirname "$0")" && pwd)"
# shellcheck source=tests/cluster/install.sh
. "$here/install.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/story" "$dir/shadows" "$dir/carriers" "$dir/geo" "$dir/guarded"
"$python/bin/python" "$here/story.py" "$pharos" "$jars" "$dir/story"
"$python/bin/python" "$here/shadows.py" "$pharos" "$jars" "$dir/shadows"
"$python/bin/python" "$here/carriers.py" "$pharos" "$jars" "$dir/carriers"
"$python/bin/python" "$here/geo.py" "$pharos" "$jars" "$dir/geo"
"$python/bin/python" "$here/guarded.py" "$pharos" "$jars" "$dir/guarded"
