#!/usr/bin/env bash
# Two brokers on real servers: Apache ZooKeeper and three of Apache's bookies, each a process of its own on loopback. One server after
# the other is killed, stopped or paused under load, and a checker outside compares every receipt with what is in the topics.
# What happens is in story.py.
#   run.sh PATH-OF-PHAROS
# Needs Java 17, Maven and Python 3. PHAROS_TEST_CACHE (default $HOME/.cache/pharos-tests) keeps what was installed.
# Prints "ok NAME" for each check; ends at the first that fails, with status 1.
set -euo pipefail
pharos=${1:?path of the pharos binary}
here="$(cd "$(dirname "$0")" && pwd)"
cache="${PHAROS_TEST_CACHE:-$HOME/.cache/pharos-tests}"
jars="$cache/bookkeeper-$(sha256sum < "$here/pom.xml" | cut -c1-12)"
python="$cache/cluster-$(sha256sum < "$here/requirements.txt" | cut -c1-12)"

if [ ! -e "$jars/installed" ]; then
    rm -rf "$jars"
    mvn -q -B -f "$here/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$jars"
    touch "$jars/installed"
fi
if [ ! -e "$python/installed" ]; then
    rm -rf "$python"
    python3 -m venv "$python"
    "$python/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt"
    touch "$python/installed"
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$python/bin/python" "$here/story.py" "$pharos" "$jars" "$dir"
