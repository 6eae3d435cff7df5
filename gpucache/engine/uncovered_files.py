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

_KERNEL = ("/proc", "/sys")
"""Most opens are of files in these, which are told by their device at less cost than by their path."""
_SYSTEM = (
    *("/proc/", "/sys/", "/dev/", "/etc/", "/run/", "/var/lib/sss/", "/var/cache/", "/var/db/"),
    *("/usr/share/zoneinfo/", "/usr/lib/os-release"),
)
# Shared objects, which may be text that names others, and what a linker is told by; settings beside
# programs; the list of OpenCL drivers; names of devices; locales; Python and what it reads as it starts.
_NAMES = re.compile(
    r".*(\.so(\.[\w.-]+)?|/ldscripts/.*|/bin/[^/]+\.cfg|\.icd|\.ids(\.gz)?"
    r"|/(lib\w*|share)/locale/.*|/gconv-modules(\.cache|\.d/.*)?"
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
    kernel = {Path(place).stat().st_dev for place in _KERNEL if Path(place).exists()}
    strange = {
        path: found
        for path in opened
        if path not in names
        and not _NAMES.fullmatch(path)
        and (found := _identity(path))
        and found[0] not in kernel
        and not os.path.realpath(path).startswith(_SYSTEM)
    }
    if not strange:
        return ()
    brought = own()
    folders = tuple(f"{os.path.realpath(path)}/" for path in brought if path.endswith("/"))
    known = {identity for path in (*covered, *brought) if (identity := _identity(path))}
    return tuple(
        path
        for path, identity in sorted(strange.items())
        if identity not in known and not os.path.realpath(path).startswith(folders) and not _is_binary(path)
    )


def name_some(paths: Sequence[str]) -> str:
    """A few of many paths in words."""
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of a regular file."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _is_binary(path: str) -> bool:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(_MAGIC_BYTES).startswith(_BINARIES)
    except OSError:
        return False
