#!/usr/bin/env bash
# The environment of `make demo`, `make test` and `make check`: ./tools/venv.sh VENV
#
# autotrace (editable, with its extras and development tools), veRL, Ray and MLflow, about 1.5 GB, no GPU packages.
# Needs a Python >= 3.10 (PYTHON=..., default python3). Installed once; again when pyproject.toml or the pins change.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
venv=${1:?usage: venv.sh VENV}
host=${PYTHON:-python3}
pins=$root/tools/requirements.txt
stamp=$venv/.autotrace-requirements
wanted=$(cat "$root/pyproject.toml" "$pins")

"$host" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    { echo "autotrace needs Python 3.10 or newer, $host is older; set PYTHON=..." >&2; exit 1; }
if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

echo "installing into $venv (once; about 1.5 GB, some minutes); uv reports each large download" >&2
[ -x "$venv/bin/python" ] || "$host" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
# uv does not read pip's own places of wheels. Where none are given, torch comes from its own index, as the CPU build:
# the default index has the CUDA build, and 3 GB of libraries with it.
links=()
for link in $("$venv/bin/python" -m pip config get global.find-links 2>/dev/null || true) ${PIP_FIND_LINKS:-}; do
    links+=(--find-links "$link")
done
[ ${#links[@]} -gt 0 ] || export UV_TORCH_BACKEND=cpu
# another name or another worktree's editable install would share its files with this one
"$venv/bin/python" -m uv pip uninstall --quiet --python "$venv/bin/python" autotrace autotrace-rl
"$venv/bin/python" -m uv pip install --python "$venv/bin/python" ${links[@]+"${links[@]}"} \
    --requirements "$pins" --override "$root/tests/e2e/overrides.txt" --editable "$root[mlflow,weave,otlp,parquet,view,mcp]" --group "$root/pyproject.toml:dev"
printf '%s' "$wanted" >"$stamp"
