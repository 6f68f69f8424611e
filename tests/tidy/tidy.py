"""Checks what reviewers should not have to: which way includes point, that each unit has its test, how long
functions and files are, which symbols leave a file or a library, whether what the documentation names is there,
and what must not be in the sources.

    tidy.py sources ROOT         the rules below, over the files that git would commit
    tidy.py exports LIBRARY      the shared library exports rg_* and nothing else
    tidy.py symbols ARCHIVE...   non-static symbols of the static libraries begin with rg_
    tidy.py glibc FILE...        what is linked needs nothing that glibc 2.28 lacks, for which wheels are built
    tidy.py callers ROOT BUILD LIBRARY   what is not static is called from another file, or public

Prints one line per finding and exits with 1 if there are any."""

import os
import re
import subprocess
import sys

import callers
import names
import sizes
import units

# What a folder may include of ours, by the first part of the path. Everything may include
# <ringest/...>, and tests, perf and examples may include anything.
LAYERS = {
    "include": set(),
    "runtime": {"runtime"},
    "http": {"http", "runtime"},
    "cache": {"cache", "runtime"},
    "gcs": {"cache", "gcs", "http", "runtime"},
    "dataset": {"dataset", "gcs", "runtime"},
    "checkpoint": {"checkpoint", "gcs", "runtime"},
    "emulator": {"emulator", "http", "runtime"},
    "cli": {
        "cache/folder.h",
        "cache/memory_table.h",
        "cli",
        "dataset/causes.h",
        "emulator",
        "gcs/credentials/sign_url.h",
        "gcs/host/account.h",
        "gcs/host/region.h",
        "gcs/host/told.h",
    }
    | {f"runtime/{name}.h" for name in ("base", "hypervisor", "log", "new_file", "thread", "uri")},
    "python": {
        "core.h",
        "dataset/causes.h",
        "dataset/steps.h",
        "gcs/credentials/sign.h",
        "gcs/wire/checksum.h",
        "runtime/base.h",
        "runtime/hypervisor.h",
        "runtime/uri.h",
    },
}

# What a folder of a layer may include of the layer's other folders: a declared order, lowest first. What
# lies beside the folders of a layer has the name "".
FOLDERS = {
    "gcs": {
        "wire": set(),
        "network": set(),
        "host": {"wire"},
        "credentials": {"host", "network", "wire"},
        "request": {"credentials", "host", "network", "wire"},
        "object": {"request", "wire"},
        "listing": {"request", "wire"},
        "upload": {"request", "wire"},
    },
    "emulator": {
        "wire": set(),
        "store/model": {"wire"},
        "store/memory": {"store/model", "wire"},
        "store/disk": {"store/model", "wire"},
        "store": {"store/disk", "store/memory", "store/model", "wire"},
        "request": {"store", "store/model", "wire"},
        "faults": {"request", "wire"},
        "api": {"faults", "request", "store", "store/model", "wire"},
        "api/json": {"api", "faults", "request", "store", "store/model", "wire"},
        "api/xml": {"api", "faults", "request", "store", "store/model", "wire"},
        "": {"api", "api/json", "api/xml", "faults", "request", "store", "wire"},
    },
}

# A foreign header and the only files that may include it.
BOUNDARIES = {
    "openssl/": r"http/tls\w*\.(c|h|cc)|cache/key\.c|gcs/(credentials/sign|wire/digest|wire/seal)\.c|emulator/(certificate\.c|wire/md5\.(c|h))",
    "liburing.h": r"runtime/\w+\.(c|h)",
    "hwloc.h": r"runtime/\w+\.(c|h)",
}

# What has callers in tests only, and why it is not static. Everything else that no other file calls is.
FOR_TESTS = {
    # What only a test has to see:
    "rg_pool_connections": "connections that a pool has, also while they are opened or closed",
    "rg_server_stats": "what one server counted; the emulator has many and tells nobody",
    "rg_slab_arena_is_sound": "the arena's invariants, at moments that a test chooses",
    "rg_timer_wheel_valid": "the wheel's invariants, at moments that a test chooses",
    "rg_tls_alpn": "whether the peer took http/1.1; the client goes on either way",
    "rg_tls_context_trust": "which certificates are trusted, in words",
    "rg_tls_failure_name": "names in tables of expected failures",
    "rg_transport_loop_memory": "memory that transports share, which has to come back",
    # Steps of closing, which virtual time lies between:
    "rg_client_close_begin": "virtual time passes before the end",
    "rg_client_close_finish": "virtual time passes before it",
    "rg_listing_close_begin": "virtual time passes before the end",
    "rg_listing_close_finish": "virtual time passes before it",
    "rg_listing_is_closed": "until when virtual time passes",
    # Pure parts, which are played everything; from the outside many cases cannot be reached:
    "rg_bucket_open_object": "what is stored, without the API in front",
    "rg_command_split": "a parser, which is fuzzed too",
    "rg_cache_name_read": "which names are segments, as anybody may have left them",
    "rg_credentials_none": "compared with what was found",
    "rg_credentials_parse": "a parser, which is fuzzed too",
    "rg_histogram_max": "compared with sorted values",
    "rg_histogram_merge": "compared with the histogram of the union",
    "rg_histogram_quantile": "compared with sorted values, at any fraction",
    "rg_proxy_list_names": "a parser of lists as users write them",
    "rg_rfc3339_parse": "a parser, which is fuzzed too",
    "rg_sigv4_authorization": "compared with AWS's published examples",
    "rg_tar_blocks_end": "where expected samples lie",
    "rg_tar_name_split": "a parser of names as tar files have them",
    "rg_topology_loop_count_default": "made-up machines, which no runtime can be opened on",
}

UNITS = ("runtime", "http", "cache", "gcs", "dataset", "checkpoint", "emulator")

# Where the library may write to the standard streams: its log, and the last words of an assertion.
PRINTERS = ("runtime/log.c", "runtime/base.c")
# The one file that starts threads.
STARTER = "runtime/thread.c"
LIBRARY = ("runtime/", "http/", "cache/", "gcs/", "dataset/", "checkpoint/")

C = (".c", ".h", ".cc")
OURS = tuple(f"{layer}/" for layer in LAYERS)
TEXT = (".c", ".h", ".cc", ".py", ".sh", ".md", ".build", ".txt", ".supp", ".scenario", ".toml", ".yml")

# Spelled in two pieces, so that this file does not match itself.
MARKERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
MACHINE_PATHS = re.compile(r"""(?<![\w.$}/*-])/(home|work|root|Users|mnt|opt)/[\w.-]""")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
STARTS = re.compile(r"\bpthread_create\s*\(")
PRINTS = re.compile(r"\b(v?printf|puts|putchar|perror)\s*\(|\bf\w+\s*\([^;]*\bstd(out|err)\b")


def committed_files(root):
    """The files that git tracks or would add; every file where there is no repository."""
    command = ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        listed = [
            os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names
        ]
        listed = [path for path in listed if not re.match(r"(\.git|build|subprojects/(?!packagefiles))/", path)]
    return sorted(path for path in listed if os.path.isfile(os.path.join(root, path)))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def without_comments(text):
    """C source with comments and strings blanked; line numbers stay."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.DOTALL)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_includes(path, text):
    allowed = LAYERS.get(path.split("/")[0])
    if allowed is None:
        return
    for match in INCLUDE.finditer(text):
        ours, foreign = match.groups()
        where = f"{path}:{line_of(text, match.start())}"
        if ours and ours not in allowed and ours.split("/")[0] not in allowed:
            yield f'{where}: must not include "{ours}"'
        for prefix, files in BOUNDARIES.items():
            if foreign and foreign.startswith(prefix) and not re.fullmatch(files, path):
                yield f"{where}: must not include <{foreign}>"


def check_folders(path, text):
    layer, _, rest = path.partition("/")
    folders = FOLDERS.get(layer)
    if folders is None:
        return
    folder = os.path.dirname(rest)
    if folder not in folders:
        yield f"{path}: lies in none of the folders of {layer}/"
        return
    for match in INCLUDE.finditer(text):
        ours = match.group(1) or ""
        target = os.path.dirname(ours.removeprefix(layer + "/"))
        if ours.startswith(layer + "/") and target != folder and target not in folders[folder]:
            yield f'{path}:{line_of(text, match.start())}: must not include "{ours}"'


def check_prints(path, text):
    if not path.startswith(LIBRARY) or path in PRINTERS:
        return
    for match in PRINTS.finditer(without_comments(text)):
        yield f"{path}:{line_of(text, match.start())}: the library prints only through its log"


def check_threads(path, text):
    if path.split("/")[0] not in LAYERS or path == STARTER:
        return
    for match in STARTS.finditer(without_comments(text)):
        yield f"{path}:{line_of(text, match.start())}: threads are started by rg_thread_start, with signals blocked"


def is_text(path):
    """Scripts and licences have no ending."""
    return path.endswith(TEXT) or "." not in os.path.basename(path)


def check_text(path, text):
    if is_text(path):
        for match in MARKERS.finditer(text):
            yield f"{path}:{line_of(text, match.start())}: {match.group()}"
        for match in MACHINE_PATHS.finditer(text):
            yield f"{path}:{line_of(text, match.start())}: a path of one machine: {match.group()}..."


def check_units(paths):
    present = set(paths)
    for path in paths:
        match = re.fullmatch(r"((\w+)/(?:\w+/)*)(\w+)\.c", path)
        if match and match.group(2) in UNITS:
            test = f"tests/{match.group(1)}test_{match.group(3)}.c"
            if test not in present:
                yield f"{path}: no test, {test} is missing"


def check_order():
    """What a folder may include has been declared before it, so that no circle can be declared."""
    for layer, folders in FOLDERS.items():
        before: set[str] = set()
        for folder, allowed in folders.items():
            for name in sorted(allowed - before):
                yield f"tidy.py: {layer}/{folder} may include {name}, which is not below it"
            before.add(folder)


def check_documentation(root, paths):
    yield from names.check(
        {path: read(root, path) if is_text(path) else "" for path in paths if "/corpus/" not in path}
    )


def check_sources(root):
    paths = committed_files(root)
    yield from check_documentation(root, paths)
    yield from check_order()
    yield from check_units(paths)
    yield from units.check_circles(
        {path: read(root, path) for path in paths if path.endswith(C) and path.startswith(OURS)}
    )
    for path in paths:
        if path == "LICENSE" or "/corpus/" in path or not is_text(path):
            continue
        text = read(root, path)
        if "\0" in text:
            continue  # a picture
        yield from check_text(path, text)
        if path.endswith((*C, ".py")):
            yield from sizes.check_sizes(path, text)
        if path.endswith(C):
            yield from check_includes(path, text)
            yield from check_folders(path, text)
            yield from check_prints(path, text)
            yield from check_threads(path, text)


def symbols(*args):
    lines = subprocess.run(
        ["nm", "--defined-only", "--format=posix", *args], check=True, capture_output=True, text=True
    )
    for line in lines.stdout.splitlines():
        fields = line.split()
        if len(fields) >= 2 and len(fields[1]) == 1 and fields[1].isupper():
            yield fields[0]


# The linker's own, and what sanitizers and coverage add.
NOT_OURS = re.compile(
    r"_init|_fini|_edata|_end|__bss_start|_\.stapsdt\.base|__(asan|tsan|ubsan|sanitizer|sancov|odr_asan)\w*.*|__\w*san_\w*"
)


def check_symbols(what, found):
    for name in sorted(set(found)):
        if not name.startswith("rg_") and not NOT_OURS.fullmatch(name):
            yield f"{what}: symbol {name} does not begin with rg_"


def check_exports(library):
    found = list(symbols("--dynamic", library))
    if not any(name.startswith("rg_") for name in found):
        yield f"{library}: exports nothing"
    yield from check_symbols(os.path.basename(library), found)


# In these versions functions that are older moved into libc (2.34), or became functions of their own (2.33: stat).
MOVED = {"2.33", "2.34"}
# Older versions have them, too, or whoever calls them does without: BoringSSL and the C++ runtime.
KNOWN = {"exp", "exp2", "log", "pthread_sigmask", "arc4random", "_dl_find_object", "__libc_single_threaded"}
IMPORTED = re.compile(r" U (\w+)@GLIBC_(2\.(\d+))", re.M)


def check_glibc(what, imported):
    for name, version, minor in IMPORTED.findall(imported):
        if int(minor) > 28 and version not in MOVED and name not in KNOWN:
            yield f"{what}: {name} came with glibc {version}; wheels are built for 2.28"


def imports(path):
    command = ["nm", "--dynamic", "--undefined-only", "--with-symbol-versions", path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(arguments):
    command, *rest = arguments
    if command == "sources":
        findings = list(check_sources(rest[0]))
    elif command == "exports":
        findings = list(check_exports(rest[0]))
    elif command == "symbols":
        findings = [
            f for archive in rest for f in check_symbols(os.path.basename(archive), symbols("--extern-only", archive))
        ]
    elif command == "glibc":
        findings = [f for path in rest for f in check_glibc(os.path.basename(path), imports(path))]
    elif command == "callers":
        root, build, library = rest
        try:
            objects = callers.objects_of(build, root)
        except callers.NotCompiled as error:
            sys.exit(str(error))
        findings = list(callers.check_callers(objects, callers.exports_of(library), FOR_TESTS))
    else:
        sys.exit(__doc__)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
