#!/usr/bin/env bash
# The environment of `make bench`: ./benchmarks/setup.sh VENV
#
# autotrace's own requirements and the peers it is measured against, about 700 MB. veRL's wheel comes without what it
# requires: only its rollout_trace.py is loaded.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
venv=${1:?usage: setup.sh VENV}
stamp=$venv/.autotrace-requirements
wanted=$(cat "$root/benchmarks/requirements.txt" "$0")
if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
echo "installing the peers into $venv (once; about 700 MB)" >&2
"$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" --requirements "$root/benchmarks/requirements.txt"
"$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" --no-deps verl==0.9.1
printf '%s' "$wanted" >"$stamp"
