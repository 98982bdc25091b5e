#!/usr/bin/env bash
# Serves the flights job and lets schemathesis try what its description promises: no 5xx, and no status, content type
# or body that is not described. Takes about a minute. Needs the packages of tests/requirements.txt in target/venv, or
# a folder of programs as its argument.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=$(realpath "${1:-target/venv/bin}")
# As `cargo test --workspace` has built it.
cargo build --quiet --workspace --profile test --bin tidegate-bench
runner=$PWD/target/debug/tidegate-bench

folder=$(mktemp -d)
job=
finish() {
    [[ -z $job ]] || kill "$job" 2>/dev/null || true
    [[ -z $job ]] || wait "$job" 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT

# What is tried leaves its own files behind.
input=$PWD/bench/data/flights-200k.csv.zst
cd "$folder"
"$runner" flights --input "$input" --rate 200 --rest 127.0.0.1:0 --task-managers node1:1,node1:1,node2:2 \
    --cluster.resource-blocklist.enabled true --quiet \
    --output "$folder/output" --checkpoints "$folder/checkpoints" >"$folder/out" 2>"$folder/err" &
job=$!
address=
for _ in $(seq 200); do
    address=$(sed -n 's|^served at http://\([^ ]*\) .*|\1|p' "$folder/err")
    [[ -z $address ]] || break
    kill -0 "$job" || { cat "$folder/err"; exit 1; }
    sleep 0.1
done
[[ -n $address ]] || { echo "the job is not served"; exit 1; }

checks=not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance
checks+=,unsupported_method,allow_header_conformance
# What ends the job would leave nothing to try.
"$programs/schemathesis" --no-color run "http://$address/openapi.json" --checks "$checks" \
    --phases examples,coverage,fuzzing --max-time 45 --generation-deterministic --warnings off \
    --exclude-operation-id cancelJob --exclude-operation-id stopJob
kill -0 "$job" || { echo "the job did not survive"; cat "$folder/err"; exit 1; }

# Those two, of jobs that are not there; the job goes on.
"$programs/schemathesis" --no-color run "http://$address/openapi.json" --checks "$checks" \
    --phases coverage --generation-deterministic --warnings off \
    --include-operation-id cancelJob --include-operation-id stopJob
kill -0 "$job" || { echo "the job did not survive"; cat "$folder/err"; exit 1; }
