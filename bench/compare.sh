#!/usr/bin/env bash
# Compares Tidegate with other programs that do the same work, in interleaved rounds so that a machine's drift falls on all
# alike, and writes the figures with CPU, flags and commit to bench/results/.
#
#   PEERS=DIR [TEXT=FILE] [ROUNDS=5] [WORKLOADS="w1 w2 w2-few-keys w3"] [WORKERS="1 2"] bench/compare.sh
#
# DIR/rust holds the sources of the programs compared with: a Cargo package with the binaries peer-hand, peer-timely and
# peer-renoir. TEXT is W3's text; without it W3 is left out. If DIR/front.sh is there, every command runs through it.
# All are built for this machine's CPU, with fat LTO, one codegen unit and mimalloc.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ! -d ${PEERS:-}/rust ]]; then
    echo "PEERS names no directory with the sources of the programs to compare with (PEERS/rust)" >&2
    exit 2
fi
rounds=${ROUNDS:-5} workloads=${WORKLOADS:-w1 w2 w2-few-keys w3} all_workers=${WORKERS:-1 2}
peers=$(cd "$PEERS" && pwd)
target=$PWD/target
export RUSTFLAGS="-C target-cpu=native"
(cd "$peers/rust" && CARGO_TARGET_DIR=$target/peers cargo build --release --locked --bins)
CARGO_TARGET_DIR=$target/native cargo build --profile bench-peers --features mimalloc -p tidegate-bench
ours=$target/native/bench-peers/tidegate-bench
theirs=$target/peers/release
front=()
[[ -x $peers/front.sh ]] && front=("$peers/front.sh")

lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
# Runs a program once and notes its line; one that fails is only missing from its round.
go() {
    local line
    line=$(timeout 300 "${front[@]}" "$@" runs=1 | grep '^{' | tail -1) || { echo "failed: $*" >&2; return 0; }
    echo "$round $line" >>"$lines"
}

for ((round = 1; round <= rounds; round++)); do
    for workload in $workloads; do
        for workers in $all_workers; do
            echo "round $round of $rounds: $workload, $workers workers" >&2
            case $workload in
                w1)
                    go "$theirs/peer-hand" w1 workers="$workers" events=200_000_000
                    go "$theirs/peer-timely" w1 workers="$workers" events=50_000_000
                    go "$theirs/peer-renoir" w1 workers="$workers" events=50_000_000
                    go "$ours" w1 workers="$workers" events=200_000_000
                    ;;
                w2)
                    go "$theirs/peer-hand" w2 workers="$workers" events=20_000_000
                    go "$theirs/peer-timely" w2 workers="$workers" events=20_000_000
                    go "$theirs/peer-renoir" w2 workers="$workers" events=20_000_000
                    go "$ours" w2 workers="$workers" events=20_000_000
                    go "$ours" w2 workers="$workers" events=20_000_000 ckpt=1
                    ;;
                w2-few-keys)
                    go "$theirs/peer-timely" w2 workers="$workers" events=50_000_000 keys=1_000
                    go "$theirs/peer-renoir" w2 workers="$workers" events=50_000_000 keys=1_000
                    go "$ours" w2 workers="$workers" events=50_000_000 keys=1_000
                    ;;
                w3)
                    [[ -n ${TEXT:-} ]] || { echo "w3 is left out: TEXT names no file" >&2; continue; }
                    go "$theirs/peer-timely" w3 workers="$workers" text="$TEXT"
                    go "$theirs/peer-renoir" w3 workers="$workers" text="$TEXT"
                    go "$ours" w3 workers="$workers" text="$TEXT" how=plain
                    go "$ours" w3 workers="$workers" text="$TEXT" how=words
                    ;;
                *) echo "no workload '$workload'" >&2; exit 2 ;;
            esac
        done
    done
done

cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1)
name=$(tr -cs 'A-Za-z0-9' '-' <<<"${cpu:-unknown}" | tr '[:upper:]' '[:lower:]' | sed 's/^-*//; s/-*$//')
result=bench/results/$(date +%F)-$name.md
mkdir -p bench/results
{
    echo "# Throughput beside other programs, $(date +%F)"
    echo
    echo "- CPU: ${cpu:-unknown}, $(nproc) allowed; load before: $(cut -d' ' -f1-3 /proc/loadavg)"
    echo "- Commit: $(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ', changed')"
    echo "- Flags: $RUSTFLAGS; fat LTO, one codegen unit, mimalloc, for all; $(rustc --version)"
    echo "- $rounds rounds, the programs taking turns; a run each after one to warm up; ${WORKERS:+workers $WORKERS}"
    echo
    python3 bench/ratios.py "$lines"
} | tee "$result"
echo "written to $result" >&2
