"""Which NVRTC libraries this process runs.

Owns finding ``libnvrtc`` and the builtins library beside it. A compile must not be needed to tell:
the builtins are resolved as the dynamic loader would when NVRTC asks for them. Needs no driver.
Source: ld.so(8) for the search order.
"""

import os
from pathlib import Path

from gpucache.backends.libraries import loaded, read_library


def nvrtc_libraries(version: tuple[int, int]) -> tuple[Path | None, Path | None]:
    """The loaded NVRTC and the builtins library that it will use, all that it reads of its own."""
    nvrtc = loaded("libnvrtc.so") or loaded("nvrtc64_")
    if nvrtc is None:
        return None, None
    return nvrtc, find_builtins(nvrtc, f"libnvrtc-builtins.so.{version[0]}.{version[1]}")


def find_builtins(nvrtc: Path, name: str) -> Path | None:
    """Where the loader finds the builtins for an NVRTC: loaded already, or by its search order."""
    already = loaded(name)
    if already is not None:
        return already
    library = read_library(nvrtc)
    origin = str(nvrtc.parent)
    # DT_RPATH counts before LD_LIBRARY_PATH, and only where there is no DT_RUNPATH.
    before = () if library.runpath else library.rpath
    places = [*before, *os.environ.get("LD_LIBRARY_PATH", "").split(":"), *library.runpath]
    candidates = [Path(place.replace("$ORIGIN", origin)) / name for place in places if place]
    return next((path for path in [*candidates, nvrtc.parent / name] if path.is_file()), None)
