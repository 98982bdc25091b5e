#!/usr/bin/env bash
# Kills the flights job with `kill -9` at random moments and runs the same command again with --resume, then lets it end and
# checks that the result is exact. `tests/chaos/kill_resume.sh [short|long] [whole|parts]`; TIDEGATE_FLIGHTS names the large
# input (without it the data that ships is read, more slowly), KILLS sets another number of kills, RUNNER another binary.
# With `parts` the input is cut into three compressed files of very different length, so that source subtasks end while
# checkpoints go on, and checkpoints are unaligned from the start.
#
# The runner's event log comes through a pipe, so most kills can be aimed: they follow the trigger of a checkpoint at once.
# Of the kills 4 in 5 must hit a running job, and 2 in 5 fall between the trigger and the completion of a checkpoint.
set -euo pipefail
cd "$(dirname "$0")/../.."

case ${1:-short} in
    short) kills=${KILLS:-6} ;;
    long) kills=${KILLS:-50} ;;
    *) echo "usage: $0 [short|long] [whole|parts]" >&2; exit 2 ;;
esac
shape=${2:-whole}
[[ $shape == whole || $shape == parts ]] || { echo "usage: $0 [short|long] [whole|parts]" >&2; exit 2; }
if [[ -n ${TIDEGATE_FLIGHTS:-} ]]; then
    input=$TIDEGATE_FLIGHTS rows=3000000
    expected=58c0405b26b2c9719f76b2504464bd59c247dbf3e33dc5f8a78c43b96c02b259
else
    input=bench/data/flights-200k.csv.zst rows=200000
    expected=3d570fcfea317152485293db930d59d0dcfb3fdee683ab5f6fdfc72627d9fc00
fi
# So slow that the job lasts for all kills, about half a second each, with something to spare: 100,000 rows/s for fifty with the
# large input.
rate=$((rows * 10 / (kills * (rows > 1000000 ? 6 : 8))))
((rate <= 100000)) || rate=100000

runner=${RUNNER:-target/release/tidegate-bench}
[[ -n ${RUNNER:-} ]] || cargo build --release -p tidegate-bench
unset TIDEGATE_FLIGHTS

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/events"
# Open on both sides, so that neither end ever waits for the other.
exec 3<>"$folder/events"
options=(--workers 2)
if [[ $shape == parts ]]; then
    case $input in
        *.zst) zstd -dcq "$input" ;;
        *) cat "$input" ;;
    esac >"$folder/all.csv"
    # A hundredth, nine hundredths, and the rest; line 1 names the columns.
    first=$((1 + rows / 100)) second=$((1 + rows / 10))
    sed -n "1,${first}p" "$folder/all.csv" | gzip -1 >"$folder/part1.csv.gz"
    sed -n "1p;$((first + 1)),${second}p" "$folder/all.csv" | gzip -1 >"$folder/part2.csv.gz"
    sed -n "1p;$((second + 1)),\$p" "$folder/all.csv" | gzip -1 >"$folder/part3.csv.gz"
    rm "$folder/all.csv"
    input="$folder/part*.csv.gz"
    # Each source subtask has a third of the rate, and one file.
    rate=$((rate * 3))
    options=(--workers 3 --checkpoint.aligned-timeout 0)
fi
command=("$runner" flights --input "$input" --output "$folder/output" --checkpoints "$folder/checkpoints"
    "${options[@]}" --checkpoint-interval 200ms --resume --quiet)

# Reads one event, for at most so many seconds, and notes what it says.
next_event() {
    local line
    IFS= read -r -t "$1" line <&3 || return 1
    case $line in
        *'"event":"triggered"'*) last=triggered ;;
        *'"event":"completed"'* | *'"event":"failed"'*) last=ended ;;
        *'"state":"Running"'*) is_running=1 ;;
        *'"state":"Finished"'*) is_running=0 ;;
    esac
}

now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

running=0 under_way=0 cycle=0
while ((cycle < kills)); do
    cycle=$((cycle + 1)) last=none is_running=0
    "${command[@]}" --rate "$rate" --events "$folder/events" >"$folder/stdout" 2>"$folder/stderr" &
    pid=$!
    while ((!is_running)) && next_event 30; do :; done
    if ((cycle % 4 == 0)); then
        # Anywhere.
        sleep "0.$((RANDOM % 6 + 1))$((RANDOM % 10))"
    else
        # At the first trigger after some time.
        from=$(($(now_ms) + RANDOM % 400)) last=none
        while next_event 5; do
            [[ $last != triggered ]] || (($(now_ms) < from)) || break
        done
    fi
    kill -9 "$pid" 2>/dev/null || true
    code=0
    wait "$pid" 2>/dev/null || code=$?
    # What it said before it died.
    while next_event 0.02; do :; done
    if ((code == 137)); then
        ((is_running)) && running=$((running + 1))
        [[ $last == triggered ]] && under_way=$((under_way + 1))
    elif ((code != 0)); then
        echo "run $cycle ended with $code:" >&2
        cat "$folder/stderr" >&2
        exit 1
    fi
done

"${command[@]}" >"$folder/stdout"
sum=$(cat "$folder"/output/part-* | LC_ALL=C sort | sha256sum | cut -d' ' -f1)
left=$(find "$folder/output" -name '.part-*' | wc -l)
"${command[@]}" >"$folder/again"
echo "$kills kills of the $shape input at $rate rows/s: $running hit a running job, $under_way fell between a trigger and its completion"
fail() { echo "FAILED: $*" >&2; exit 1; }
[[ $sum == "$expected" ]] || fail "the result is wrong: $sum"
((left == 0)) || fail "$left uncommitted files are left"
grep -q "the job has ended before" "$folder/again" || fail "the job that has ended does not say so"
((running * 5 >= kills * 4)) || fail "too few kills hit a running job"
((under_way * 5 >= kills * 2)) || fail "too few kills fell between a trigger and its completion"
