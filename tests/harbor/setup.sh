#!/usr/bin/env bash
# Harbor's models of its trajectory format, of whose dependencies they need only pydantic: ./setup.sh VENV
# HARBOR_PYTHON: a Python >= 3.12 (default: the one that uv finds)
set -euo pipefail
venv=${1:?usage: setup.sh VENV}
python3 -m uv --version >/dev/null 2>&1 || python3 -m pip install --quiet uv
[ -x "$venv/bin/python" ] || python3 -m uv venv --quiet --python "${HARBOR_PYTHON:-3.12}" "$venv"
if ! "$venv/bin/python" -c 'import harbor, pydantic' 2>/dev/null; then
    python3 -m uv pip install --quiet --python "$venv/bin/python" --no-deps 'harbor>=0.25'
    python3 -m uv pip install --quiet --python "$venv/bin/python" 'pydantic>=2.12'
fi
