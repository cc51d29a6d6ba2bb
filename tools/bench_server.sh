#!/usr/bin/env bash
# Measures the server's table of docs/benchmarks.md and puts it there: tools/bench_server.sh FOLDER [NAME...]
#
# FOLDER keeps a JSON file for each run; NAMEs choose runs (all by default), the table is made of all that FOLDER has.
# PYTHON is an interpreter with headrace and its rivals (`pip install 'headrace[bench]'`, `headrace bench setup`).
set -euo pipefail
folder=${1:?a folder for the runs}
shift
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python}
asgi=headrace-asgi,uvicorn,uvicorn-uvloop-0.22,granian-asgi,fastpysgi-asgi
wsgi=headrace-wsgi,headrace-wsgi-threads,granian-wsgi,granian-wsgi-threads,fastpysgi-wsgi,gunicorn-gthread
amount=(--rounds 4 --seconds 0.7 --restart-every 2)
mkdir -p "$folder"

run() { # NAME WORDS...: one run, unless others were chosen
    local name=$1
    shift
    [[ ${#chosen[@]} -eq 0 || " ${chosen[*]} " == *" $name "* ]] || return 0
    "$python" -m headrace bench run "$@" --json "$folder/$name.json"
}

chosen=("$@")
run 1-hello http-hello --contenders "$asgi,$wsgi,gunicorn-sync" --rounds 6 --seconds 0.7 --restart-every 3
run 2-sizes http-sizes --contenders "$asgi" --connections 64 "${amount[@]}"
run 3-post http-post --contenders "$asgi" "${amount[@]}"
run 4-stream http-stream --contenders "$asgi" "${amount[@]}"
run 5-pipelined http-pipelined --contenders "$asgi" "${amount[@]}"
run 6-websocket websocket-echo --contenders "${asgi%,fastpysgi-asgi}" "${amount[@]}"
run 7-tornado tornado-hello "${amount[@]}"
run 8-flask flask-hello --contenders "$wsgi" "${amount[@]}"
run 9-starlette starlette-json --contenders "${asgi/uvicorn-uvloop-0.22,/}" "${amount[@]}"
exec "$python" "$root/tools/benchmarks_tables.py" "$root/docs/benchmarks.md" server "$folder"/*.json
