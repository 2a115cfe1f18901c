#!/usr/bin/env bash
# A real SGLang engine (tokenizer manager, scheduler, detokenizer) on CPU, with autotrace: ./setup.sh VENV
#
# SGLang 0.5.23, about 2.6 GB, 90 seconds. What is there already is left alone, so a second call costs a second. vLLM's tests
# use the environment of tests/e2e. torch for the CPU is built for Python 3.11.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=${1:?usage: setup.sh VENV}
python=$venv/bin/python
python3 -m uv --version >/dev/null 2>&1 || python3 -m pip install --quiet uv
# pip's own settings hold the places to look for the CPU wheel of torch; uv does not read them
links=()
for link in $(python3 -m pip config get global.find-links 2>/dev/null || true); do links+=(--find-links "$link"); done
install() { python3 -m uv pip install --quiet --python "$python" "${links[@]}" "$@"; }

[ -x "$python" ] || python3 -m uv venv --quiet --python 3.11 "$venv"
stamp=$venv/.engines-requirements
if ! cmp -s "$here/requirements-sglang.txt" "$stamp"; then
    install "torch==2.13.0"
    install --no-deps -r "$here/requirements-sglang.txt"
    # The index's torchvision is built for CUDA, its compiled operators do not load: two modules that register on them go
    init=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torchvision/__init__.py
    sed -i '/^    _meta_registrations,$/d;/^    _autograd_registrations,$/d' "$init"
    cp "$here/requirements-sglang.txt" "$stamp"
fi
# again when its name, entry points or requirements change
if ! cmp -s "$root/pyproject.toml" "$venv/.autotrace-pyproject"; then
    python3 -m uv pip uninstall --quiet --python "$python" autotrace autotrace-rl
    install --no-deps --editable "$root"
    cp "$root/pyproject.toml" "$venv/.autotrace-pyproject"
fi
