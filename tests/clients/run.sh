#!/usr/bin/env bash
# Runs the official Pulsar clients against a broker; see README.md.
#   run.sh --url pulsar://127.0.0.1:PORT --admin http://127.0.0.1:PORT
#          [--only python,java,go,node,rust] [--skip-extension] [--test SUBSTRING] [--logs DIR]
#          [--auth token|basic|oauth2]      with what the variables PHAROS_AUTH_… say; python, java and go
#          [--tls-trust-certs FILE [--tls-cert FILE --tls-key FILE]]   for pulsar+ssl:// URLs; python, java and go
# PHAROS_TEST_CACHE (default $HOME/.cache/pharos-tests) keeps what was installed and built; remove it to start afresh.
# Prints "ok <lang> <test>" or "not ok <lang> <test>: reason" for each test, and a summary at the end.
set -uo pipefail
HERE="$(cd "$(dirname "$0")" && pwd)"
CACHE="${PHAROS_TEST_CACHE:-$HOME/.cache/pharos-tests}"
ONLY=python,java,go,node,rust
LOGS="$CACHE/logs"
URL="" ADMIN=""
TLS_TRUST_CERTS="" TLS_CERT="" TLS_KEY=""
SKIP_EXTENSION=0 FILTER=""
# A language's whole run may take this long; its own tests have shorter deadlines.
RUN_SECONDS=300

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --url) URL="${2:?}"; shift 2 ;;
    --admin) ADMIN="${2:?}"; shift 2 ;;
    --only) ONLY="${2:?}"; shift 2 ;;
    --test) FILTER="${2:?}"; shift 2 ;;
    --logs) LOGS="${2:?}"; shift 2 ;;
    --tls-trust-certs) TLS_TRUST_CERTS="${2:?}"; shift 2 ;;
    --tls-cert) TLS_CERT="${2:?}"; shift 2 ;;
    --tls-key) TLS_KEY="${2:?}"; shift 2 ;;
    --auth) export PHAROS_AUTH="${2:?}"; shift 2 ;;
    --skip-extension) SKIP_EXTENSION=1; shift ;;
    *) usage ;;
  esac
done
[ -n "$URL" ] && [ -n "$ADMIN" ] || usage
mkdir -p "$CACHE" "$LOGS"

# What is installed once for a set of files, named by their content: a change makes a new directory.
cached() { local name=$1; shift; echo "$CACHE/$name-$(cat "$@" | sha256sum | cut -c1-12)"; }

# Each install_<lang> leaves everything the run needs in the cache; each run_<lang> needs no network but the broker.
install_python() {
  PYTHON_HOME="$(cached python "$HERE/python/requirements.txt")"
  [ -e "$PYTHON_HOME/installed" ] && return
  rm -rf "$PYTHON_HOME"
  python3 -m venv "$PYTHON_HOME" &&
    "$PYTHON_HOME/bin/pip" install -q --disable-pip-version-check --only-binary :all: -r "$HERE/python/requirements.txt" &&
    touch "$PYTHON_HOME/installed"
}
run_python() { PYTHONDONTWRITEBYTECODE=1 timeout "$RUN_SECONDS" "$PYTHON_HOME/bin/python" "$HERE/python/main.py"; }

install_java() {
  JAVA_LIB="$(cached java-lib "$HERE/java/pom.xml")"
  JAVA_CLASSES="$CACHE/java-classes"
  if [ ! -e "$JAVA_LIB/installed" ]; then
    rm -rf "$JAVA_LIB"
    mvn -q -B -f "$HERE/java/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$JAVA_LIB" || return
    touch "$JAVA_LIB/installed"
  fi
  rm -rf "$JAVA_CLASSES"
  javac -nowarn -d "$JAVA_CLASSES" -cp "$JAVA_LIB/*" $(find "$HERE/java/src" -name '*.java')
}
run_java() {
  timeout "$RUN_SECONDS" java -Xmx512m -XX:MaxDirectMemorySize=512m -XX:+UseSerialGC \
    -Dorg.slf4j.simpleLogger.logFile="$LOGS/java.log" -Dorg.slf4j.simpleLogger.showDateTime=true \
    -cp "$JAVA_CLASSES:$JAVA_LIB/*" clients.Main
}

install_go() {
  GO_PROGRAM="$CACHE/go-clients"
  (cd "$HERE/go" && go build -mod=readonly -buildvcs=false -o "$GO_PROGRAM" .)
}
run_go() { timeout "$RUN_SECONDS" "$GO_PROGRAM"; }

# The Node client cannot be installed from package registries alone; README.md says why. 77 means "not here, and that is known".
install_node() { return 77; }
run_node() { return 77; }

install_rust() {
  (cd "$HERE/rust" && CARGO_TARGET_DIR="$CACHE/rust-target" cargo build -q --locked)
}
run_rust() { timeout "$RUN_SECONDS" "$CACHE/rust-target/debug/foreign-clients"; }

passed=0 failed=0 skipped=""
one() {
  local lang=$1 out code p f started=$SECONDS
  out="$LOGS/$lang.out"; rm -f "$out" "$LOGS/$lang.err" "$LOGS/$lang.log"
  install_"$lang" > "$LOGS/$lang-build.log" 2>&1; code=$?
  if [ $code = 77 ]; then
    echo "skipped $lang: its client cannot be installed from package registries alone, see README.md"
    skipped="$skipped $lang"; return
  elif [ $code != 0 ]; then
    tail -n 20 "$LOGS/$lang-build.log" >&2
    echo "not ok $lang install: exit status $code, see $LOGS/$lang-build.log"; failed=$((failed + 1)); return
  fi
  echo "# $lang: installed in $((SECONDS - started)) s"; started=$SECONDS
  PHAROS_URL="$URL" PHAROS_ADMIN="$ADMIN" PHAROS_SKIP_EXTENSION="$SKIP_EXTENSION" PHAROS_TEST_FILTER="$FILTER" \
    PHAROS_TLS_TRUST_CERTS="$TLS_TRUST_CERTS" PHAROS_TLS_CERT="$TLS_CERT" PHAROS_TLS_KEY="$TLS_KEY" \
    PHAROS_LOG="$LOGS/$lang.log" run_"$lang" 2> "$LOGS/$lang.err" | tee "$out" | grep -E --line-buffered '^(ok|not ok) '
  code=${PIPESTATUS[0]}
  p=$(grep -c "^ok $lang " "$out"); f=$(grep -c "^not ok $lang " "$out")
  if [ "$code" != 0 ] && [ "$f" = 0 ]; then
    tail -n 20 "$LOGS/$lang.err" >&2
    echo "not ok $lang run: exit status $code, see $LOGS/$lang.err"; f=1
  elif [ "$p" = 0 ] && [ "$f" = 0 ] && [ -z "$FILTER" ]; then
    echo "not ok $lang run: no test ran"; f=1
  fi
  passed=$((passed + p)) failed=$((failed + f))
  echo "# $lang: $p passed, $f failed in $((SECONDS - started)) s"
}

for lang in ${ONLY//,/ }; do
  declare -F "run_$lang" > /dev/null || usage
  one "$lang"
done
[ -z "$skipped" ] || echo "clients skipped:$skipped"
echo "clients: $passed passed, $failed failed"
[ "$failed" = 0 ]
