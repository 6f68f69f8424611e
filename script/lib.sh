# Sourced by the other scripts: they all run from the repository's root and stop at the first error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

say() {
    printf '== %s\n' "$*" >&2
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# The trees that more than one script uses are made alike by all of them.
python_options=(-Dpython=true -Dtest_python="$root/build/venv/bin/python")
test_options=(--werror -Dverify=true -Ddebug=false -Dc_args=-g1 -Dcpp_args=-g1 "${python_options[@]}")
# Half the time to compile, and the sanitizers' reports still name lines. Here gcc warns of texts that
# might not fit where it sees further at -O2; what it warns of there is an error above.
sanitizer_options=(-Dverify=true -Doptimization=1 -Ddebug=false -Dc_args=-g1 -Dcpp_args=-g1)
asan_options=("${sanitizer_options[@]}" -Db_sanitize=address,undefined "${python_options[@]}")
tsan_options=("${sanitizer_options[@]}" -Db_sanitize=thread "${python_options[@]}")

# In a function that is called in a condition nothing stops by itself at an error, so these two return
# what failed.

# configure NAME OPTION...: makes build/NAME, afresh where the options, the tools or the place
# are not those it was made with. meson itself notices every other change.
configure() {
    local dir=build/$1 want with=()
    shift
    # mold links tests in half the time. What is shipped is linked by the system's own.
    if [[ $dir = build/test || " $* " = *' -Db_sanitize='* ]] && command -v mold >/dev/null; then
        with=(env CC_LD=mold CXX_LD=mold)
    fi
    want=$(printf '%s\n' "$root" "$(meson --version)" "${CC-}" "$(cat subprojects/boringssl/.stamp)" "${with[@]}" "$@")
    if [ ! -f "$dir/build.ninja" ] || [ "$(cat "$dir/.stamp" 2>/dev/null)" != "$want" ]; then
        rm -rf "$dir"
        "${with[@]}" meson setup "$dir" "$@" >&2 || return
        printf '%s\n' "$want" >"$dir/.stamp"
    fi
}

# virtual_environment DIR REQUIREMENTS: makes DIR with what a file names, from PyPI, afresh where it is
# not what it was made with. Without a file it is empty.
virtual_environment() {
    local dir=$1 requirements=${2-/dev/null} want
    want=$(printf '%s\n' "$root" "$(python3 --version)" "$(cat "$requirements")")
    if [ "$(cat "$dir/.stamp" 2>/dev/null)" != "$want" ]; then
        rm -rf "$dir"
        python3 -m venv "$dir" || return
        "$dir/bin/pip" --quiet --disable-pip-version-check install --only-binary :all: \
            --requirement "$requirements" >&2 || return
        printf '%s\n' "$want" >"$dir/.stamp"
    fi
}

# source_distribution DIR PIN: leaves what is in the source distribution NAME==VERSION --hash=sha256:... in DIR.
# pip asks its build backend for metadata even when it only downloads. This backend answers from PKG-INFO, so
# that nothing of the package is run and nothing else is fetched. The hash is checked before it is opened.
source_distribution() {
    local dir=$1 pin=$2 work name python=python3
    [ -x /usr/bin/python3 ] && /usr/bin/python3 -m pip --version >/dev/null 2>&1 && python=/usr/bin/python3
    work=$(mktemp -d) || return
    name=${pin%%==*}
    mkdir -p "$work/backend/setuptools" "$dir" || return
    touch "$work/backend/setuptools/__init__.py"
    cat >"$work/backend/setuptools/build_meta.py" <<'PYTHON'
import os
import re
import shutil
import sys

__legacy__ = sys.modules[__name__]  # of packages that name no backend


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    with open("PKG-INFO", encoding="utf-8") as info:
        fields = dict(re.findall(r"^(Name|Version): (.+)$", info.read(), re.MULTILINE))
    name = "{}-{}.dist-info".format(fields["Name"].replace("-", "_"), fields["Version"])
    os.mkdir(os.path.join(metadata_directory, name))
    shutil.copy("PKG-INFO", os.path.join(metadata_directory, name, "METADATA"))
    return name
PYTHON
    printf '%s\n' "$pin" >"$work/requirements.txt"
    PYTHONPATH=$work/backend "$python" -m pip -qq --disable-pip-version-check download \
        --no-deps --use-pep517 --no-binary "$name" --no-build-isolation --require-hashes \
        --requirement "$work/requirements.txt" --dest "$work/download" >&2 &&
        tar -xzf "$work/download"/*.tar.gz -C "$dir" --strip-components=1
    local status=$?
    rm -rf "$work"
    return $status
}

# source_distributions DIR FILE: each line of the file, a pin, in DIR/NAME, afresh where the file changed.
source_distributions() {
    local dir=$1 file=$2 pin
    cmp -s "$file" "$dir/.stamp" && return
    rm -rf "$dir"
    while read -r pin; do
        case $pin in '' | '#'*) continue ;; esac
        source_distribution "$dir/${pin%%==*}" "$pin" || return
    done <"$file"
    cp "$file" "$dir/.stamp"
}

# start_emulator PROGRAM OPTION...: sets $endpoint, $ca and $emulator_pid; stop_emulator ends it, and so
# does the end of the script, whatever that was.
start_emulator() {
    local program=$1 ready
    shift
    ready=$(mktemp)
    setpriv --pdeathsig TERM "$program" emulate "$@" >"$ready" &
    emulator_pid=$!
    until grep -q '}' "$ready"; do
        kill -0 "$emulator_pid" 2>/dev/null || die 'the emulator ended before it was ready'
        sleep 0.05
    done
    endpoint=$(sed -n 's/.*"endpoint" *: *"\([^"]*\)".*/\1/p' "$ready")
    ca=$(sed -n 's/.*"ca" *: *"\([^"]*\)".*/\1/p' "$ready")
    rm -f "$ready"
}

stop_emulator() {
    [ -n "${emulator_pid-}" ] || return 0
    kill "$emulator_pid" 2>/dev/null || true
    wait "$emulator_pid" 2>/dev/null || true
}
