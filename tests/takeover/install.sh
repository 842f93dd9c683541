# What run.sh needs, installed if need be: sets $jars, Pulsar's broker with the bookies and the ZooKeeper that it brings, and $python,
# with the client. Wants $here.
# shellcheck shell=bash disable=SC2154
cache="${PHAROS_TEST_CACHE:-$HOME/.cache/pharos-tests}"
jars="$cache/pulsar-$(sha256sum < "$here/pom.xml" | cut -c1-12)"
python="$cache/cluster-$(sha256sum < "$here/../cluster/requirements.txt" | cut -c1-12)"

if [ ! -e "$jars/installed" ]; then
    rm -rf "$jars"
    mvn -q -B -f "$here/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$jars"
    touch "$jars/installed"
fi
if [ ! -e "$python/installed" ]; then
    rm -rf "$python"
    python3 -m venv "$python"
    "$python/bin/pip" install -q --disable-pip-version-check -r "$here/../cluster/requirements.txt"
    touch "$python/installed"
fi
