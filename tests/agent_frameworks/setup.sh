#!/usr/bin/env bash
# A framework's environment: what its requirements.txt names, and autotrace: ./setup.sh FRAMEWORK VENV
#
# What stands in requirements-alone.txt is installed without what it requires: accelerators, and what builds only beside them.
# python.txt names another Python than 3.11; uv.toml has settings of uv.
# Installed once, and again when one of these or autotrace's requirements change. A second call costs 10 ms.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
framework=${1:?usage: setup.sh FRAMEWORK VENV}
venv=${2:?usage: setup.sh FRAMEWORK VENV}
requirements=$root/tests/agent_frameworks/$framework/requirements.txt
[ -f "$requirements" ] || { echo "no such framework: $framework; it would have $requirements" >&2; exit 2; }
alone=${requirements%.txt}-alone.txt
[ -f "$alone" ] || alone=/dev/null
[ ! -f "${requirements%/*}/uv.toml" ] || export UV_CONFIG_FILE=${requirements%/*}/uv.toml
python=${AGENTS_PYTHON:-$(cat "${requirements%/*}/python.txt" 2>/dev/null || echo 3.11)}
stamp=$venv/.autotrace-requirements
wanted=$(cat "$root/pyproject.toml" "$requirements" "$alone"; echo "$python"; cat "${UV_CONFIG_FILE:-/dev/null}")
if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

python3 -m uv --version >/dev/null 2>&1 || python3 -m pip install --quiet uv
rm -rf "$venv"
python3 -m uv venv --quiet --python "$python" "$venv"
# uv does not read pip's own places of wheels (the CPU build of torch)
links=()
for link in $(python3 -m pip config get global.find-links 2>/dev/null || true); do links+=(--find-links "$link"); done
python3 -m uv pip install --quiet --python "$venv/bin/python" ${links[@]+"${links[@]}"} \
    --requirements "$requirements" --editable "$root"
[ ! -s "$alone" ] || python3 -m uv pip install --quiet --python "$venv/bin/python" --no-deps --requirements "$alone"
printf '%s' "$wanted" >"$stamp"
