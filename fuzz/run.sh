#!/bin/sh
# Runs each fuzz target for a number of seconds: fuzz/run.sh [seconds=60] [target...]
#
# Works with the pinned stable toolchain: RUSTC_BOOTSTRAP opens the two compiler switches that libFuzzer's coverage needs, for
# this build alone. New inputs go to fuzz/corpus, which is not checked in; the seeds are in fixtures.
set -eu

seconds=${1:-60}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- frame command message formats store metadata managed_ledger offload_index

cd "$(dirname "$0")"
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
host=$(rustc -vV | sed -n 's/^host: //p')

export RUSTC_BOOTSTRAP=1
export CARGO_TARGET_DIR="$target_dir"
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"

# Naming the target triple keeps the flags away from build scripts and macros.
cargo build --release --locked --target "$host" --bins

for name in "$@"; do
    case $name in
        message) seeds=../fixtures/wire/entries ;;
        formats) seeds=../fixtures/storage ;;
        managed_ledger) seeds=../fixtures/managed-ledger ;;
        offload_index) seeds=../fixtures/offload ;;
        # Makes its files itself; an input says what to change in them.
        store | metadata) seeds= ;;
        *) seeds=../fixtures/wire/frames ;;
    esac
    # A checkpoint is written twice.
    case $name in formats) max_len=16384 ;; *) max_len=4096 ;; esac
    mkdir -p "corpus/$name" "artifacts/$name"
    echo "== $name for $seconds s"
    "$target_dir/$host/release/$name" "corpus/$name" $seeds -max_total_time="$seconds" -max_len="$max_len" \
        -rss_limit_mb=512 -timeout=5 -artifact_prefix="artifacts/$name/" -print_final_stats=1
done
