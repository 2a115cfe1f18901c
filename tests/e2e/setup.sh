#!/usr/bin/env bash
# Everything the end-to-end test needs, in one virtual environment: ./setup.sh VENV
#
# veRL 0.9.1, vLLM 0.27.1 (the CPU build), Ray, MLflow and autotrace itself, about 2.8 GB, plus a tiny model that really
# calls its tool, and its data. What is there already is left alone, so a second call costs a second.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=${1:?usage: setup.sh VENV}
python=$venv/bin/python
python3 -m uv --version >/dev/null 2>&1 || python3 -m pip install --quiet uv
# pip's own settings hold the places to look for the CPU wheel of torch; uv does not read them
links=()
for link in $(python3 -m pip config get global.find-links 2>/dev/null || true); do links+=(--find-links "$link"); done

[ -x "$python" ] || python3 -m uv venv --quiet --python 3.11 "$venv"
stamp=$venv/.e2e-requirements
if ! cmp -s "$here/requirements.txt" "$stamp"; then
    python3 -m uv pip sync --quiet --python "$python" "${links[@]}" "$here/requirements.txt"
    cp "$here/requirements.txt" "$stamp"
fi
# again when its name, entry points or requirements change
if ! cmp -s "$root/pyproject.toml" "$venv/.autotrace-pyproject"; then
    python3 -m uv pip uninstall --quiet --python "$python" autotrace autotrace-rl
    python3 -m uv pip install --quiet --python "$python" --no-deps "${links[@]}" --editable "$root"
    cp "$root/pyproject.toml" "$venv/.autotrace-pyproject"
fi

data=$venv/e2e
mkdir -p "$data"
[ -f "$data/model/model.safetensors" ] || "$python" "$here/tiny_model.py" "$data/model"
[ -f "$data/train.parquet" ] || "$python" "$here/make_data.py" "$data/train.parquet" 8
[ -f "$data/val.parquet" ] || "$python" "$here/make_data.py" "$data/val.parquet" 4
