"""The environment of a command: the additions for it, and its state without us. Pure."""

# Paths are text, as variables contain them.
# ruff: noqa: PTH119

import os

TYPE_CHECKING = False  # the constant of typing; a command waits for each import of this module
if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET = "GPUCACHE_RUN_SOCKET"
ROOTS = "GPUCACHE_RUN_ROOTS"
TIMEOUT = "GPUCACHE_RUN_TIMEOUT_MS"
REQUIRE = "GPUCACHE_REQUIRE"
_USUAL_MS = 5_000
_LONGEST_MS = 600_000
LAYERS = "OPENCL_LAYERS"
AUDIT = "LD_AUDIT"


class Libraries:
    """The paths of the libraries that go into a command; empty for one that is not there."""

    def __init__(self, layer: str = "", audit: str = "") -> None:
        self.layer = layer
        """Asked by the OpenCL loader."""
        self.audit = audit
        """Asked by the dynamic linker, for NVRTC."""


def intercepted(
    environ: "Mapping[str, str]", socket: str, libraries: Libraries, roots: str = ""
) -> dict[str, str]:
    """The environment of a command whose compilers ask at a socket; our values come before its own.

    ``roots`` are the roots whose index they search before they ask; without any they ask at once.
    """
    added = {**environ, SOCKET: socket, ROOTS: roots}
    if not roots:
        del added[ROOTS]
    for name, library in ((LAYERS, libraries.layer), (AUDIT, libraries.audit)):
        if library:
            others = _others(environ.get(name, ""), library)
            added[name] = os.pathsep.join((library, *others))
    return added


def time_out_s() -> float:
    """How many seconds a program waits for one answer at most, as its library reads the variable."""
    given = os.environ.get(TIMEOUT, "")
    limit = int(given[:9]) if given.isascii() and given.isdigit() else 0
    return (limit if 0 < limit <= _LONGEST_MS else _USUAL_MS) / 1000


def step_s() -> float:
    """How many seconds each of three steps of an answer may take, so that the program still waits after them.

    They are the start of the server, reading headers, and waiting for another build's lock.
    """
    return 0.3 * time_out_s()


def probe_s() -> float:
    """How many seconds an answer may wait for the probe; with ``step_s`` less than a program waits."""
    return 0.4 * time_out_s()


def drain_s() -> float:
    """How many seconds the end of a run waits for builds that are still being stored."""
    return 2 * time_out_s()


def without_us(environ: "Mapping[str, str]", libraries: Libraries) -> dict[str, str]:
    """The environment of a program as it would be without ``gpucache run``."""
    left = {name: value for name, value in environ.items() if name not in (SOCKET, ROOTS)}
    for name, library in ((LAYERS, libraries.layer), (AUDIT, libraries.audit)):
        if library and name in left:
            others = _others(left.pop(name), library)
            if others:
                left[name] = os.pathsep.join(others)
    return left


def _others(value: str, library: str) -> tuple[str, ...]:
    """The other entries of a list of libraries, next to ours, of which an exported layer has copies."""
    name = os.path.basename(library)
    return tuple(part for part in value.split(os.pathsep) if part and os.path.basename(part) != name)
