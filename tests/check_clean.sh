#!/usr/bin/env bash
# Runs .ci/run as a bare machine would: on a clean checkout of HEAD in a new folder, with an empty home,
# no caches and the PATH of the system (and of the Python that `make` was given). Uncommitted changes are left out.
set -uo pipefail
top=$(git rev-parse --show-toplevel) || exit 1
[[ -z $(git -C "$top" status --porcelain) ]] || echo "Note: uncommitted changes are not checked."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/home" "$top/build"
git clone -q "$top" "$place/checkout" || exit 1
python=$(dirname "$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)')")
env -i CI=true HOME="$place/home" LANG=C.UTF-8 PATH="$python:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" \
    CHECK_LOG="${CHECK_LOG:-${XDG_CACHE_HOME:-$HOME/.cache}/icl_mech/checks.jsonl}" \
    bash "$place/checkout/.ci/run" 2>&1 | tee "$top/build/check-clean.log"
status=${PIPESTATUS[0]}
cp -r "$place/checkout/build/check" "$top/build/" 2>/dev/null
exit "$status"
