#!/bin/sh
# Two small environments (about 230 MB together): W&B's own trace server and the genuine client that reads back.
#
#   tests/weave_server/setup.sh SERVER_VENV CLIENT_VENV
#
# Tests find them through AUTOTRACE_TEST_WEAVE_SERVER and AUTOTRACE_TEST_WEAVE_CLIENT (paths of the two folders).
# They cannot be one: the server's code left the wheel after 0.52.41, and today's client imports none of its models.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
make_env() {
    [ -x "$1/bin/python" ] || python3 -m venv "$1"
    if python3 -m uv --version >/dev/null 2>&1; then
        python3 -m uv pip install --quiet --python "$1/bin/python" -r "$2"
    else
        "$1/bin/python" -m pip install --quiet -r "$2"
    fi
}
make_env "${1:?folder for the server environment}" "$here/requirements-server.txt"
make_env "${2:?folder for the client environment}" "$here/requirements-client.txt"
