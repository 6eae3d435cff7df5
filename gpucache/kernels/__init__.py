"""Kernels of Triton and their recording: what runs in a program's own Python, and in that of a worker.

The modules below ``inside/`` are not imported by gpucache. A program's Python finds them through PYTHONPATH,
whatever its version and its packages, so they use the standard library and the program's Triton alone. Their
lines are read by ``recording/kernels.py``.
"""

import os
from collections.abc import Mapping
from pathlib import Path

INSIDE = os.path.join(os.path.dirname(__file__), "inside")  # noqa: PTH118, PTH120 - a variable's text
FOLDER = "GPUCACHE_RECORD_KERNELS"
"""The variable that names the recording to write."""
_NO_SOURCES = "GPUCACHE_RECORD_NO_SOURCES"
CACHE = "TRITON_CACHE_DIR"
"""Triton's own variable for the place of its cache."""
UNSEEN = (
    "Triton compiled in a Python that reads no PYTHONPATH, as with -I or -E; run it without, or begin the "
    f"program with: import sys; sys.path.insert(0, {INSIDE!r}); import sitecustomize"
)
_GROUPS = "*/__grp__*.json"
WORKER = os.path.join(INSIDE, "gpucache_triton_worker.py")  # noqa: PTH118 - a word of a command
"""The program that compiles recorded kernels, for the Python that recorded them."""


def watched(folder: str, environ: Mapping[str, str], *, sources: bool) -> dict[str, str]:
    """The variables by which the Pythons of a command record their kernels in a directory."""
    places = filter(None, (INSIDE, environ.get("PYTHONPATH")))
    return {
        FOLDER: folder,
        _NO_SOURCES: "" if sources else "1",
        "PYTHONPATH": os.pathsep.join(places),
    }


def kept(place: str) -> int:
    """How many kernels there are in a cache of Triton."""
    return sum(1 for _ in Path(place).glob(_GROUPS)) if place else 0
