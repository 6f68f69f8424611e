#!/usr/bin/env bash
# Makes a wheel, installs it into an empty virtual environment of each Python that is here, looks at what it loads from
# the system, and reads an object with it. With aarch64, the Python of script/cross's sysroot runs it, by qemu-user.
# usage: tests/install/test_wheel.sh [aarch64]
source "$(dirname "$0")/../../script/lib.sh"

machine=${1-x86_64}
script/build
wheel=$(script/wheel "$machine")
[[ $wheel == *-abi3-manylinux_2_28_$machine.whl ]] || die "the wheel is for other systems: $wheel"
place=$(mktemp -d)
emulator_pid=
trap 'stop_emulator; rm -rf "$place"' EXIT
pip install --quiet --disable-pip-version-check --no-index --no-deps --target "$place/ringest" --only-binary :all: \
    --platform "manylinux_2_28_$machine" --python-version 3.11 --abi abi3 "$wheel"
foreign=$(readelf --dynamic "$place/ringest/ringest/_core.abi3.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -vE "^(ld-linux|libc\.|libm\.|libpthread\.|libdl\.|librt\.)" || true)
[ -z "$foreign" ] || die "the wheel loads from the system: $foreign"

start_emulator build/root/bin/ringest --synthetic wheel/object-:1:4096
# reads PYTHON...: an object, with what lies in $PYTHONPATH or was installed.
reads() {
    STORAGE_EMULATOR_HOST=$endpoint SSL_CERT_FILE=$ca "$@" - <<'PYTHON'
import platform

import ringest

assert len(ringest.Client().get("gs://wheel/object-00000000")) == 4096
print(platform.python_version(), platform.machine())
PYTHON
}
tried=0
if [ "$machine" != "$(uname -m)" ]; then
    sysroot=$root/build/cross/sysroot
    PYTHONPATH=$place/ringest reads "qemu-$machine" -L "$sysroot" "$sysroot/usr/bin/python3.11"
    tried=1
else
    for python in python3.{11..20}; do
        command -v "$python" >/dev/null && "$python" -c 'pass' 2>/dev/null || continue
        "$python" -m venv "$place/$python"
        "$place/$python/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
        reads "$place/$python/bin/python"
        tried=$((tried + 1))
    done
fi
echo "$tried passed, 0 failed, 0 skipped"
