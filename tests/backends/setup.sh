#!/bin/sh
# The older veRL releases of the table, unpacked (their code is imported from there; nothing is installed).
#
#   PYTHON=.venv/bin/python tests/backends/setup.sh .verl-releases
set -eu
folder=${1:?folder for the releases}
for release in 0.7.1 0.8.0; do
    [ -d "$folder/$release/verl" ] && continue
    mkdir -p "$folder/$release"
    "${PYTHON:-python3}" -m pip download --quiet --no-deps --dest "$folder" "verl==$release"
    "${PYTHON:-python3}" -m zipfile -e "$folder/verl-$release-py3-none-any.whl" "$folder/$release"
done
