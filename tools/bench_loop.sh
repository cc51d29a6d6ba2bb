#!/usr/bin/env bash
# Measures the loop's table of docs/benchmarks.md and puts it there: tools/bench_loop.sh FOLDER [NAME...]
#
# FOLDER keeps a JSON file for each run; NAMEs choose runs (all by default), the table is made of all that FOLDER has.
# BENCH_LOOP_WRAP is a command to run each measurement under, such as `flock FILE`; PYTHON an interpreter with headrace.
set -euo pipefail
folder=${1:?a folder for the runs}
shift
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python}
protocols=uvloop,headrace
streams=uvloop-streams,headrace-streams
older=uvloop-0.22-streams
amount=(--rounds 6 --seconds 0.5 --restart-every 3)
mkdir -p "$folder"

run() { # NAME WORDS...: one run, unless others were chosen
    local name=$1
    shift
    [[ ${#chosen[@]} -eq 0 || " ${chosen[*]} " == *" $name "* ]] || return 0
    ${BENCH_LOOP_WRAP:-} "$python" -m headrace bench run "$@" --json "$folder/$name.json"
}

chosen=("$@")
sizes="1 KB,10 KB,100 KB"
run 1-tcp-10 tcp-echo --cases "$sizes" --contenders "$protocols,$streams" "${amount[@]}"
run 2-tcp-300 tcp-echo --cases "$sizes" --connections 300 --contenders "$protocols,$streams" "${amount[@]}"
run 3-unix-10 unix-echo --cases "$sizes" --contenders "$protocols,$streams" "${amount[@]}"
run 4-unix-300 unix-echo --cases "$sizes" --connections 300 --contenders "$protocols,$streams" "${amount[@]}"
run 5-asyncio tcp-echo --cases "$sizes" --contenders "asyncio,asyncio-mmap,$protocols" "${amount[@]}"
run 6-others sock-echo readline two-writes call-soon timers \
    --contenders "$protocols,uvloop-0.22,$streams,$older,uvloop-sock,uvloop-0.22-sock,headrace-sock" \
    "${amount[@]}"
run 7-redis redis --contenders "$streams,$older,redis-server" "${amount[@]}"
run 8-tls tls-echo --contenders "$protocols,$streams,aiofastnet,aiofastnet-uvloop,asyncio" "${amount[@]}"
run 9-udp udp-echo --contenders "$protocols,uvloop-0.22,asyncio" "${amount[@]}"
exec "$python" "$root/tools/benchmarks_tables.py" "$root/docs/benchmarks.md" loop "$folder"/*.json
