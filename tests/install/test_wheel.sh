#!/usr/bin/env bash
# Makes a wheel, installs it into an empty virtual environment, looks at what it loads from the system,
# and reads an object with it.
source "$(dirname "$0")/../../script/lib.sh"

script/build
wheel=$(script/wheel)
place=$(mktemp -d)
emulator_pid=
trap 'stop_emulator; rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
core=("$place"/lib/python3*/site-packages/ringest/_core.abi3.so)
foreign=$(ldd "${core[0]}" | awk '{print $1, $3}' |
    grep -vE "^(linux-vdso|/lib.*/ld-linux|libc\.|libm\.|libpthread\.|libdl\.|librt\.)" || true)
[ -z "$foreign" ] || die "the wheel loads from the system: $foreign"
[[ $wheel == *-abi3-manylinux_2_28_*.whl ]] || die "the wheel is for other systems: $wheel"

start_emulator build/root/bin/ringest --synthetic wheel/object-:1:4096
STORAGE_EMULATOR_HOST=$endpoint SSL_CERT_FILE=$ca "$place/bin/python" - <<'PYTHON'
import ringest

assert len(ringest.Client().get("gs://wheel/object-00000000")) == 4096
PYTHON
echo '1 passed, 0 failed, 0 skipped'
