"""Which NVRTC libraries this process runs, told from their ELF build ids.

Owns finding ``libnvrtc`` and the builtins library beside it. A compile must not be needed to tell:
the builtins are resolved as the dynamic loader would when NVRTC asks for them. Needs no driver.
Sources: ld.so(8) for the search order, the ELF note NT_GNU_BUILD_ID for the build id.
"""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from gpucache.backends.loaded import loaded

NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class Library:
    """What a shared library says of itself."""

    build_id: str
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]


def nvrtc_build_ids(version: tuple[int, int]) -> tuple[str, str]:
    """Build ids of the loaded NVRTC and of the builtins library it will use."""
    nvrtc = loaded("libnvrtc.so") or loaded("nvrtc64_")
    if nvrtc is None:
        return NOT_FOUND, NOT_FOUND
    builtins = find_builtins(nvrtc, f"libnvrtc-builtins.so.{version[0]}.{version[1]}")
    return _build_id(nvrtc), NOT_FOUND if builtins is None else _build_id(builtins)


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


def read_library(path: Path) -> Library:
    """Build id and search paths of an ELF file; empty where it has none or does not read."""
    build_id, rpath, runpath = NOT_FOUND, "", ""
    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            for segment in elf.iter_segments("PT_NOTE"):
                for note in segment.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        build_id = str(note["n_desc"])
            for segment in elf.iter_segments("PT_DYNAMIC"):
                for tag in segment.iter_tags():
                    rpath = getattr(tag, "rpath", rpath)
                    runpath = getattr(tag, "runpath", runpath)
    except (OSError, ELFError):
        pass  # the build id stays NOT_FOUND, which never equals a real one
    return Library(build_id, _places(rpath), _places(runpath))


@cache
def _build_id(path: Path) -> str:
    library = read_library(path)
    if library.build_id != NOT_FOUND:
        return library.build_id
    try:  # not ELF (Windows): size and name are the best that can be told without reading it all
        return f"{path.name} of {path.stat().st_size} bytes"
    except OSError:
        return NOT_FOUND


def _places(text: str) -> tuple[str, ...]:
    return tuple(place for place in text.split(":") if place)
