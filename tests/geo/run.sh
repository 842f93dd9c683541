#!/usr/bin/env bash
# A cluster of Pharos and one of Pulsar that replicate to each other, both set up with stock pulsar-admin: what goes, in which order, that
# nothing goes round, and that nothing is lost or stored twice when either broker is killed. What happens is in story.py.
#   run.sh PATH-OF-PHAROS
# Needs Java 17 or later, Maven and Python 3. PHAROS_TEST_CACHE (default $HOME/.cache/pharos-tests) keeps what was installed.
# Prints "ok NAME" for each check; ends at the first that fails, with status 1.
set -euo pipefail
pharos=${1:?path of the pharos binary}
tests="$(cd "$(dirname "$0")/.." && pwd)"
# The jars of Pulsar's broker, and Python with the client, are those of another test.
here="$tests/takeover"
# shellcheck source=tests/takeover/install.sh
. "$here/install.sh"
admin="$cache/java-admin-$(sha256sum < "$tests/clients/java/admin.xml" | cut -c1-12)"
if [ ! -e "$admin/installed" ]; then
    rm -rf "$admin"
    mvn -q -B -f "$tests/clients/java/admin.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$admin"
    touch "$admin/installed"
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
PYTHONPATH="$tests/cluster" "$python/bin/python" "$tests/geo/story.py" "$pharos" "$jars" "$admin" "$dir"
