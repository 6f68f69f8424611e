"""Whether there is an extension for this interpreter. Free-threaded builds of Python need one of their own, and would
only say that they find none."""

import importlib.util
import sys


def _has_extension() -> bool:
    spec = importlib.util.find_spec("ringest._core")
    return spec is not None and not str(spec.origin).endswith(".abi3.so")


if "free-threading" in sys.version and not _has_extension():
    raise ImportError(
        "this ringest was built for interpreters with a global lock (GIL), and this is a free-threaded one: build "
        "ringest with it (pip install --no-binary ringest ringest), or use python3.14 instead of python3.14t"
    )
