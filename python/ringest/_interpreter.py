"""Whether this interpreter can have the extension. Free-threaded builds do not even find it, and say no more than that."""

import sys

# The extension's objects rely on the interpreter's lock.
if "free-threading" in sys.version:
    raise ImportError(
        "ringest needs an interpreter with a global lock (GIL), and this is a free-threaded build of Python; use the "
        "ordinary one, such as python3.14 instead of python3.14t"
    )
