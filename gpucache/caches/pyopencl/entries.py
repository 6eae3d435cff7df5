"""The folder of an entry, as a scan and a check read it: its three files and what they say.

Owns the shape of an entry and what tells that it changed. Must not judge it.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gpucache import payload
from gpucache.caches import files
from gpucache.caches.files import Identity
from gpucache.caches.pyopencl import names, sources
from gpucache.caches.pyopencl.pickled import LARGEST_BYTES as LARGEST_INFO_BYTES
from gpucache.caches.pyopencl.pickled import Info, read_info
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.keys import digest
from gpucache.outcomes import CacheEntry, FindingKind, Problem
from gpucache.payload import PayloadInfo, PayloadKind
from gpucache.payload.source import kernel_names

LARGEST_SOURCE_BYTES = 64 << 20
LARGEST_BINARY_BYTES = 1 << 30
"""The largest that is given out."""
CHECKED_BINARY_BYTES = 256 << 20
"""The largest that is looked into."""
_SCANNED_BYTES = 4 << 20
"""Of a larger binary a scan reads no more than its beginning, which gives its kind."""
_NAMES_LOOKED_AT = 1000
_OPTIONS = re.compile(r"^Options used by backend compiler: (.{0,65536})$", re.MULTILINE)
_NOT_ITS_OWN = (
    "nothing in its folder shows that PyOpenCL made it, nor does the name of the folder above; "
    "remove it yourself if it is PyOpenCL's"
)
_DEVICES = {PayloadKind.INTEL_CPU: "Intel CPU", PayloadKind.INTEL_GPU: "Intel GPU"}


@dataclass(frozen=True, slots=True)
class Seen:
    """An entry's folder as a scan saw it."""

    root: Path
    """The folder that the lock is in."""
    key: str
    identities: tuple[tuple[str, Identity], ...]
    """Of every name in the folder."""

    @property
    def names(self) -> tuple[str, ...]:
        """What is in the folder."""
        return tuple(name for name, _ in self.identities)


def keys(folder: Folder) -> Iterator[str]:
    """The names of a cache's entries."""
    return (one.name for one in folder.entries() if names.is_key(one.name) and _is_folder(one))


def identities(inner: Folder) -> tuple[tuple[str, Identity], ...]:
    """Everything in an entry's folder, bounded, with what tells whether it changed; raises OSError."""
    found = []
    for name in sorted(one.name for one in islice(inner.entries(), _NAMES_LOOKED_AT)):
        with suppress(FileNotFoundError):
            found.append((name, Identity.of(inner.lstat(name))))
    return tuple(found)


def look_at(folder: Folder, key: str) -> CacheEntry | None:
    """An entry as inspect and evict see it; None where its folder is gone."""
    try:
        with folder.folder(key) as inner:
            return _entry(folder, inner, key)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(folder, key, f"its folder cannot be read ({error.strerror})")


def read_source(inner: Folder) -> bytes:
    """The source as its program wrote it; raises FormatError, OSError."""
    return sources.as_written(files.read(inner, names.SOURCE, LARGEST_SOURCE_BYTES))


def read_binary(inner: Folder) -> bytes:
    """The compiled bytes; raises FormatError, OSError."""
    return files.read(inner, names.BINARY, LARGEST_BINARY_BYTES)


def info_of(inner: Folder) -> Info:
    """What the entry says of its build; raises FormatError, OSError."""
    return read_info(files.read(inner, names.INFO, LARGEST_INFO_BYTES))


def logged_options(log: str) -> str | None:
    """The options in a build log, all of them in one line; Intel's compilers alone write them there."""
    match = _OPTIONS.search(log)
    return match[1] if match is not None and match[1].isprintable() else None


def device_of(info: PayloadInfo) -> str:
    """What a binary says of its device; empty where it says nothing."""
    if info.architecture is not None:
        return info.architecture
    told = dict(info.detail)
    return told.get("device", "") if info.kind is PayloadKind.RUSTICL else _DEVICES.get(info.kind, "")


def _is_folder(one: "os.DirEntry[str]") -> bool:
    try:
        return one.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _entry(folder: Folder, inner: Folder, key: str) -> CacheEntry:
    listed = identities(inner)
    statuses = {name: inner.lstat(name) for name, _ in listed}
    binary = statuses.get(names.BINARY) or inner.status()
    described = _described(inner)
    source, info = _source(inner), _info(inner)
    options = logged_options(info.log) if info else None
    kernels = tuple(kernel_names(source or b""))
    fields = [("source", digest(source))] if source is not None else []
    if options is not None:
        fields.append(("options", options))
    return CacheEntry(
        cache=names.NAME,
        key=key,
        path=str(inner.path),
        size_bytes=sum(map(files.allocated_bytes, (inner.status(), *statuses.values()))),
        created_ns=binary.st_mtime_ns,
        last_used_ns=max(binary.st_atime_ns, binary.st_mtime_ns),
        program=kernels[0] if kernels else "",
        target=device_of(described) if described else "",
        artifact_kind=described.kind.value if described else "",
        variant="; ".join(filter(None, (_more(len(kernels) - 1), options))),
        unique=True,  # neither options nor device are stored, so none is another's version
        fields=tuple(fields),
        damage=_damage(statuses),
        stays="" if _is_own(folder, inner, statuses, info) else _NOT_ITS_OWN,
        handle=Seen(folder.path, key, listed),
    )


def _unreadable(folder: Folder, key: str, why: str) -> CacheEntry:
    return CacheEntry(
        cache=names.NAME,
        key=key,
        path=str(folder.path / key),
        size_bytes=0,
        created_ns=0,
        last_used_ns=0,
        unique=True,
        damage=Problem(FindingKind.CORRUPT, why),
        handle=Seen(folder.path, key, ()),
    )


def _more(count: int) -> str:
    """What is told of the kernels that do not name the program."""
    if count < 1:
        return ""
    return "and 1 more kernel" if count == 1 else f"and {count} more kernels"


def _source(inner: Folder) -> bytes | None:
    with suppress(OSError, FormatError):
        return read_source(inner)
    return None


def _info(inner: Folder) -> Info | None:
    with suppress(OSError, FormatError):
        return info_of(inner)
    return None


def _is_own(folder: Folder, inner: Folder, statuses: dict[str, os.stat_result], info: Info | None) -> bool:
    """Whether an entry is PyOpenCL's by the name of its cache or by what it holds, or holds nothing.

    Others, too, name folders by an MD5 and keep a file called ``info`` or ``binary`` in them.
    """
    if info is not None or names.python_of(folder.path.name):
        return True
    if not any(status.st_size for status in statuses.values()):
        return True
    with suppress(OSError, FormatError):
        return sources.is_marked(files.read(inner, names.SOURCE, LARGEST_SOURCE_BYTES))
    return False


def _described(inner: Folder) -> PayloadInfo | None:
    with suppress(OSError, FormatError):
        return payload.describe(files.read_part(inner, names.BINARY, 0, _SCANNED_BYTES))
    return None


def _damage(statuses: dict[str, os.stat_result]) -> Problem | None:
    for name in (names.BINARY, names.INFO):
        if name not in statuses:
            return Problem(FindingKind.TRUNCATED, f"{name} is missing")
        if statuses[name].st_size == 0:
            return Problem(FindingKind.TRUNCATED, f"{name} is empty")
    return None
