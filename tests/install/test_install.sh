#!/usr/bin/env bash
# Builds and installs as script/build does, in a tree of its own and without optimization, which has nothing to do with what is
# tested here. Installs that into an empty folder, too, builds examples/get_many.c against what lies there,
# found through pkg-config, as C and as C++, and runs both against the installed program's emulator.
source "$(dirname "$0")/../../script/lib.sh"

script/build install -Doptimization=0 -Ddebug=false
build/install-venv/bin/python -c 'import ringest; ringest.Client("http://localhost:1").close()'
stage=$(mktemp -d)
emulator_pid=
trap 'stop_emulator; rm -rf "$stage"' EXIT
DESTDIR=$stage meson install -C build/install --no-rebuild --quiet

prefix=$stage$root/build/install-root
export PKG_CONFIG_SYSROOT_DIR=$stage PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
for file in bin/ringest lib/libringest.so lib/libringest.so.0 lib/pkgconfig/ringest.pc include/ringest/ringest.h; do
    [ -e "$prefix/$file" ] || die "$file is not installed"
done
read -ra flags <<<"$(pkg-config --cflags --libs ringest)"

warnings=(-Wall -Wextra -Werror)
gcc -std=c99 "${warnings[@]}" -D_POSIX_C_SOURCE=200809L examples/get_many.c -o "$stage/get_many_c" "${flags[@]}"
# C++ compilers take fields that an initialiser leaves out for an oversight; in C they are zero.
g++ -std=c++20 "${warnings[@]}" -Wno-missing-field-initializers -x c++ examples/get_many.c -o "$stage/get_many_cpp" "${flags[@]}"

start_emulator "$prefix/bin/ringest" --synthetic install/object-:10000:4096
export STORAGE_EMULATOR_HOST=$endpoint SSL_CERT_FILE=$ca
for program in get_many_c get_many_cpp; do
    told=$("$stage/$program" install object- 10000)
    [ "$told" = '10000 objects, 40960000 bytes, 0 failed' ] || die "$program said: $told"
done
echo '2 passed, 0 failed, 0 skipped'
