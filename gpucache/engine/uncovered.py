"""Which of the files that a compiler opened no key covers.

Owns what belongs to no program whatever compiles it: the kernel's and the loader's files, shared objects
and archives, locales and Python's modules. What a compiler brings besides its backend knows. A file is
told by its device and inode, so that any name of a covered file is covered: a link that leads elsewhere
later changes the key only under names that the closure knows.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

_SYSTEM = (
    *("/proc/", "/sys/", "/dev/", "/etc/", "/run/", "/var/lib/sss/", "/var/cache/", "/var/db/"),
    *("/usr/share/zoneinfo/", "/usr/lib/os-release"),
)
# Shared objects, which may be text that names others, and what a linker is told by; the list of OpenCL
# drivers; names of devices; locales; Python and what it reads as it starts.
_NAMES = re.compile(
    r".*(\.so(\.[\w.-]+)?|/ldscripts/.*|\.icd|\.ids(\.gz)?|/(lib\w*|share)/locale/.*|/gconv-modules(\.cache|\.d/.*)?"
    r"|\.pyc?|\.pth|/pyvenv\.cfg|\.(dist|egg)-info/[^/]+|/openssl\.cnf)",
    re.DOTALL,
)
_BINARIES = (b"\x7fELF", b"!<arch>\n", b"!<thin>\n")
_MAGIC_BYTES = max(map(len, _BINARIES))
_NAMED = 3


def uncovered(
    opened: Iterable[str], covered: Sequence[str], own: Callable[[], Sequence[str]]
) -> tuple[str, ...]:
    """Of the paths that were opened the regular files that are not covered, in order.

    ``own`` gives what the compiler brings; a path that ends in a slash stands for all below it.
    """
    names = frozenset(covered)
    files = {path: status for path in opened if path not in names and (status := _regular(path))}
    strange = {path: status for path, status in files.items() if not _is_system(os.path.realpath(path))}
    if not strange:
        return ()
    known = {(status.st_dev, status.st_ino) for path in covered if (status := _regular(path))}
    brought = tuple(_resolved(path) for path in own())
    return tuple(
        path
        for path, status in sorted(strange.items())
        if (status.st_dev, status.st_ino) not in known
        and not _is_below(os.path.realpath(path), brought)
        and not _is_binary(path)
    )


def name_some(paths: Sequence[str]) -> str:
    """A few of many paths in words."""
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


def _regular(path: str) -> os.stat_result | None:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _is_system(path: str) -> bool:
    return path.startswith(_SYSTEM) or _NAMES.fullmatch(path) is not None


def _resolved(path: str) -> str:
    real = os.path.realpath(path)
    return f"{real}/" if path.endswith("/") else real


def _is_below(path: str, places: Sequence[str]) -> bool:
    return any(path.startswith(place) if place.endswith("/") else path == place for place in places)


def _is_binary(path: str) -> bool:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(_MAGIC_BYTES).startswith(_BINARIES)
    except OSError:
        return False
