"""The environment of a command: what is added for it, and what it would be without us. Pure."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOCKET = "GPUCACHE_RUN_SOCKET"
TIMEOUT = "GPUCACHE_RUN_TIMEOUT_MS"
LAYERS = "OPENCL_LAYERS"
AUDIT = "LD_AUDIT"


@dataclass(frozen=True, slots=True)
class Libraries:
    """The libraries that go into a command; None for one that is not there."""

    layer: Path | None = None
    """Asked by the OpenCL loader."""
    audit: Path | None = None
    """Asked by the dynamic linker, for NVRTC."""


def intercepted(environ: Mapping[str, str], socket: Path, libraries: Libraries) -> dict[str, str]:
    """The environment of a command whose compilers are to ask at a socket; ours stand before its own."""
    added = {**environ, SOCKET: str(socket)}
    for name, library in ((LAYERS, libraries.layer), (AUDIT, libraries.audit)):
        if library is not None:
            others = _others(environ.get(name, ""), library)
            added[name] = os.pathsep.join((str(library), *others))
    return added


def without_us(environ: Mapping[str, str], libraries: Libraries) -> dict[str, str]:
    """The environment of a program as it would be if nobody had intercepted its command."""
    left = {name: value for name, value in environ.items() if name != SOCKET}
    for name, library in ((LAYERS, libraries.layer), (AUDIT, libraries.audit)):
        if library is not None and name in left:
            others = _others(left.pop(name), library)
            if others:
                left[name] = os.pathsep.join(others)
    return left


def _others(value: str, library: Path) -> tuple[str, ...]:
    """What a list of libraries names beside ours, of which an exported layer has copies."""
    return tuple(part for part in value.split(os.pathsep) if part and Path(part).name != library.name)
