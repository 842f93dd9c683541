#!/usr/bin/env bash
# Apache ZooKeeper and Apache BookKeeper on loopback, for tests: each server is a JVM of its own, so that a single one can be killed.
#
#   bookkeeper.sh start DIR [BOOKIES]     starts one ZooKeeper and BOOKIES (3) bookies; of those that run already, nothing. So it also
#                                         brings back what was killed, on the same port and with its data
#   bookkeeper.sh kill DIR NAME...        SIGKILL; the names are zookeeper, bookie1, bookie2, …
#   bookkeeper.sh pause|resume DIR NAME.. SIGSTOP and SIGCONT
#   bookkeeper.sh stop DIR                ends them all, by their process ids
#   bookkeeper.sh classpath               the jars of both and of the Java client, on one line; downloads them if need be
#
# DIR keeps data, logs, pids and ports, and DIR/env, which a shell can source after `start`:
#   ZOOKEEPER_ADDRESS=127.0.0.1:PORT   BOOKIES='127.0.0.1:PORT …'   BOOKKEEPER_CLASSPATH='…'
# The metadata of ledgers is below /ledgers. Settings of all bookies, one `key=value` a line, are taken from BOOKIE_SETTINGS, those of
# one from BOOKIE1_SETTINGS, BOOKIE2_SETTINGS, …; JVMs get PEER_HEAP (256m).
# Needs Java 17, Maven and Python 3. PHAROS_TEST_CACHE (default $HOME/.cache/pharos-tests) keeps the jars.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${PHAROS_TEST_CACHE:-$HOME/.cache/pharos-tests}
heap=${PEER_HEAP:-256m}
patience=90 # seconds for a server to come up

usage() { sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }

classpath() {
    local lib; lib=$cache/bookkeeper-$(sha256sum < "$here/pom.xml" | cut -c 1-12)
    if [ ! -e "$lib/installed" ]; then
        rm -rf "$lib"
        mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$lib" >&2
        touch "$lib/installed"
    fi
    echo "$lib/*"
}

java_options() {
    printf '%s\n' "-Xmx$heap" "-XX:MaxDirectMemorySize=$heap" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true \
        -Dlog4j2.level=WARN -Dzookeeper.admin.enableServer=false -Dio.netty.tryReflectionSetAccessible=true
    local package
    for package in java.base/java.nio java.base/java.io java.base/java.lang java.base/java.util.zip java.base/jdk.internal.misc; do
        printf -- '--add-opens=%s=ALL-UNNAMED\n' "$package"
    done
}

pid_of() { cat "$dir/run/$1.pid" 2> /dev/null; }
# A process that ended and was not waited for does not run.
runs() { local pid; pid=$(pid_of "$1") && kill -0 "$pid" 2> /dev/null && ! grep -q '^State:[[:space:]]*Z' "/proc/$pid/status" 2> /dev/null; }
port_of() { cat "$dir/run/$1.port"; }
free_port() { # Below those that the system gives to sockets that connect: servers come back to theirs.
    python3 -c '
import random, socket
while True:
    port = random.randrange(10_000, 32_000)
    try:
        socket.create_server(("127.0.0.1", port)).close()
        print(port)
        break
    except OSError:
        pass'
}
accepts() { (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; }

# What ZooKeeper answers to one of its words of four letters.
zookeeper_says() {
    exec 3<> "/dev/tcp/127.0.0.1/$(port_of zookeeper)" || return 1
    printf '%s' "$1" >&3
    cat <&3
    exec 3>&-
}
# What a server has said since it was launched last.
says() { tail -c "+$(($(cat "$dir/run/$1.log-begin") + 1))" "$dir/log/$1.log"; }
# is_up NAME: it serves. A bookie that was killed is known to ZooKeeper for a while yet, and one that starts accepts connections and drops
# them; so what it says counts too.
is_up() {
    accepts "$(port_of "$1")" || return 1
    case $1 in
    zookeeper) [ "$(zookeeper_says ruok 2> /dev/null)" = imok ] ;;
    *) grep -q 'Started component.*bookie-server' < <(says "$1") && zookeeper_says dump 2> /dev/null | grep -q "/ledgers/available/127.0.0.1:$(port_of "$1")\$" ;;
    esac
}

launch() { # launch NAME COMMAND...
    local name=$1; shift
    { wc -c < "$dir/log/$name.log" || echo 0; } > "$dir/run/$name.log-begin" 2> /dev/null
    setsid java "${options[@]}" -cp "$jars" "$@" >> "$dir/log/$name.log" 2>&1 < /dev/null &
    echo $! > "$dir/run/$name.pid"
}

begin_zookeeper() { # begin_zookeeper NAME PORT
    # Ticks are short so that sessions may be.
    cat > "$dir/zoo.cfg" <<END
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
dataDir=$dir/zookeeper
clientPort=$2
clientPortAddress=127.0.0.1
maxClientCnxns=0
4lw.commands.whitelist=ruok,dump
END
    launch "$1" org.apache.zookeeper.server.ZooKeeperServerMain "$dir/zoo.cfg"
}

begin_bookie() { # begin_bookie NAME PORT
    local own=${1^^}_SETTINGS
    mkdir -p "$dir/$1/journal" "$dir/$1/ledgers"
    cat > "$dir/$1.conf" <<END
bookiePort=$2
advertisedAddress=127.0.0.1
allowLoopback=true
metadataServiceUri=zk+hierarchical://127.0.0.1:$(port_of zookeeper)/ledgers
zkTimeout=4000
journalDirectories=$dir/$1/journal
ledgerDirectories=$dir/$1/ledgers
indexDirectories=$dir/$1/ledgers
journalMaxSizeMB=64
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
dbStorage_writeCacheMaxSizeMb=32
dbStorage_readAheadCacheMaxSizeMb=16
dbStorage_rocksDB_blockCacheSize=8388608
logSizeLimit=268435456
minUsableSizeForIndexFileCreation=8388608
minUsableSizeForEntryLogCreation=8388608
minUsableSizeForHighPriorityWrites=8388608
diskUsageThreshold=0.9999
diskUsageWarnThreshold=0.9998
numAddWorkerThreads=1
numReadWorkerThreads=1
autoRecoveryDaemonEnabled=false
httpServerEnabled=false
${BOOKIE_SETTINGS:-}
${!own:-}
END
    launch "$1" org.apache.bookkeeper.server.Main --conf "$dir/$1.conf"
}

# begin KIND NAME: starts it, without waiting. A port that was free a moment ago may be taken: see `await_all`.
begin() {
    local kind=$1 name=$2
    [ -e "$dir/run/$name.port" ] || free_port > "$dir/run/$name.port"
    "begin_$kind" "$name" "$(port_of "$name")"
}

# await_all KIND NAME...: until they are up. One that ends before it ever was gets another port and begins anew, twice at most.
await_all() {
    local kind=$1 name tries end; shift
    for name in "$@"; do
        tries=0 end=$((SECONDS + patience))
        until is_up "$name"; do
            if ! runs "$name" && [ ! -e "$dir/run/$name.was-up" ] && [ $((tries += 1)) -le 2 ]; then
                rm -rf "${dir:?}/$name" "$dir/run/$name.port"
                begin "$kind" "$name"
            elif ! runs "$name" || [ "$SECONDS" -ge "$end" ]; then
                tail -n 40 "$dir/log/$name.log" >&2
                echo "$name did not come up: $dir/log/$name.log; room on its disk: $(df -h --output=avail,size "$dir" | tail -n 1)" >&2
                return 1
            fi
            sleep 0.1
        done
        touch "$dir/run/$name.was-up"
    done
}

start() {
    local count=${1:-3} names=() name n
    mkdir -p "$dir/log" "$dir/run"
    jars=$(classpath)
    mapfile -t options < <(java_options)
    runs zookeeper || begin zookeeper zookeeper
    await_all zookeeper zookeeper
    if [ ! -e "$dir/run/formatted" ]; then
        printf 'metadataServiceUri=zk+hierarchical://127.0.0.1:%s/ledgers\n' "$(port_of zookeeper)" > "$dir/format.conf"
        java "${options[@]}" -cp "$jars" org.apache.bookkeeper.bookie.BookieShell -conf "$dir/format.conf" initnewcluster \
            > "$dir/log/format.log" 2>&1 < /dev/null || { tail -n 40 "$dir/log/format.log" >&2; return 1; }
        touch "$dir/run/formatted"
    fi
    for n in $(seq 1 "$count"); do
        name=bookie$n names+=("bookie$n")
        runs "$name" || begin bookie "$name"
    done
    await_all bookie "${names[@]}"
    {
        echo "ZOOKEEPER_ADDRESS=127.0.0.1:$(port_of zookeeper)"
        echo "BOOKIES='$(for name in "${names[@]}"; do printf '127.0.0.1:%s ' "$(port_of "$name")"; done)'"
        echo "BOOKKEEPER_CLASSPATH='$jars'"
    } > "$dir/env"
}

# tell SIGNAL NAME...: to those that run.
tell() {
    local signal=$1 name pid; shift
    for name in "$@"; do
        pid=$(pid_of "$name") || continue
        kill "-$signal" "$pid" 2> /dev/null || true
    done
}
# gone SECONDS NAME...: whether they have ended by then.
gone() {
    local end=$((SECONDS + $1)) name; shift
    for name in "$@"; do
        while runs "$name"; do
            [ "$SECONDS" -lt "$end" ] || return 1
            sleep 0.05
        done
        rm -f "$dir/run/$name.pid"
    done
}
end_all() {
    local file bookies=()
    for file in "$dir"/run/bookie*.pid; do [ ! -e "$file" ] || bookies+=("$(basename "$file" .pid)"); done
    # Bookies first: they say goodbye to ZooKeeper. One that is paused hears nothing but SIGKILL.
    tell TERM "${bookies[@]}"; gone 10 "${bookies[@]}" || { tell KILL "${bookies[@]}"; gone 10 "${bookies[@]}"; }
    tell TERM zookeeper; gone 10 zookeeper || { tell KILL zookeeper; gone 10 zookeeper; }
}

[ $# -gt 0 ] || usage
command=$1; shift
if [ "$command" = classpath ]; then classpath; exit; fi
dir=${1:-}; shift || usage
[ -n "$dir" ] || usage
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
case $command in
start) start "$@" ;;
kill) tell KILL "$@"; gone 10 "$@" ;;
pause) tell STOP "$@" ;;
resume) tell CONT "$@" ;;
stop) end_all ;;
*) usage ;;
esac
