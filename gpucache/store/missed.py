"""Requests that missed and were left to their program: a file each, until ``warm --misses`` builds them.

A file is called ``<64 hex of the key>.json`` and holds everything that a build needs, its source too; it is
written aside and renamed. Bounded in number and bytes, the oldest give way. Losing one costs a warm
start, never a program, so nothing here raises OSError. Must not know how anything is compiled.
"""

import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress

from gpucache.errors import CacheUnusableError, TargetError
from gpucache.folders import Folder
from gpucache.model import ArtifactKind, BuildRequest, CacheKey, Language, Program, Target
from gpucache.outcomes import Noted
from gpucache.store import layout
from gpucache.store.ground import Ground
from gpucache.store.interface import MissedRequest
from gpucache.store.trust import open_trusted

FILE_CAP = 256
"""Requests kept at most: the newest."""
REQUEST_BYTES_CAP = 8 << 20
"""A request that needs more bytes, its source among them, is not kept."""
BYTES_CAP = 64 << 20
AGAIN_NS = 3600 * 10**9
"""A request that is wanted again after so long is news, as whoever was to build it may have been stopped."""
_UNUSABLE = (OSError, CacheUnusableError)
_NAME = re.compile(r"([0-9a-f]{64})\.json")


class Missed:
    """The missed requests below one root."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def note(self, missed: MissedRequest) -> Noted:
        """Keep a request, with the local sizes that it was kept with before."""
        name = f"{missed.key.hex}.json"
        with suppress(*_UNUSABLE), self._ground.make(*layout.MISSED) as folder:
            before = _read(folder, name)
            known = before.request.local_sizes if before is not None else ()
            sizes = dict.fromkeys((*known, *missed.request.local_sizes))
            recent = before is not None and missed.when_ns - before.when_ns < AGAIN_NS
            known_as_rejected = before is not None and before.rejected
            if recent and len(sizes) == len(known) and missed.rejected <= known_as_rejected:
                return Noted.KNOWN
            data = _encode(missed, tuple(sizes))
            if len(data) > REQUEST_BYTES_CAP:
                return Noted.LOST
            with self._ground.make(*layout.TMP) as tmp:
                _write(tmp, folder, name, data, self._ground.file_mode)
            _trim(folder)
            return Noted.NEW
        return Noted.LOST

    def all(self) -> list[MissedRequest]:
        """Every request that reads, the oldest first."""
        found = []
        with suppress(*_UNUSABLE), self._ground.open(*layout.MISSED) as folder:
            for name in sorted(entry.name for entry in folder.entries())[: 2 * FILE_CAP]:
                found.append(_read(folder, name))
        return sorted((one for one in found if one is not None), key=lambda one: one.when_ns)

    def forget(self, key: CacheKey) -> None:
        """Remove the request of a key."""
        with suppress(*_UNUSABLE), self._ground.open(*layout.MISSED) as folder:
            folder.unlink(f"{key.hex}.json")


def _write(tmp: Folder, folder: Folder, name: str, data: bytes, mode: int) -> None:
    aside = f"{os.getpid()}-{secrets.token_hex(8)}-{name}"
    try:
        fd = tmp.open_for_writing(aside, os.O_WRONLY | os.O_EXCL, mode)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
        finally:
            os.close(fd)
        tmp.move(aside, folder, name)
    except BaseException:
        with suppress(OSError):
            tmp.unlink(aside)
        raise


def _trim(folder: Folder) -> None:
    """Remove the oldest until both caps hold."""
    ages = []
    for name in [entry.name for entry in folder.entries() if _NAME.fullmatch(entry.name)]:
        with suppress(OSError):
            status = folder.lstat(name)
            ages.append((status.st_mtime_ns, status.st_size, name))
    kept_bytes = 0
    for rank, (_, size, name) in enumerate(sorted(ages, reverse=True)):
        kept_bytes += size
        if rank >= FILE_CAP or kept_bytes > BYTES_CAP:
            with suppress(OSError):
                folder.unlink(name)


def _read(folder: Folder, name: str) -> MissedRequest | None:
    """The request of a file; None for what is none, is not ours, or does not read."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        with open_trusted(folder, name) as (fd, status):
            if status.st_size > REQUEST_BYTES_CAP:
                return None
            with os.fdopen(os.dup(fd), "rb") as file:
                data = file.read(REQUEST_BYTES_CAP + 1)
        return _decode(CacheKey(match[1]), json.loads(data))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, TargetError):
        return None


def _encode(missed: MissedRequest, local_sizes: tuple[tuple[int, ...], ...]) -> bytes:
    request = missed.request
    values = {
        "when_ns": missed.when_ns,
        "command": missed.command,
        "environment": missed.environment,
        "rejected": missed.rejected,
        "program": request.program.name,
        "language": request.program.language.value,
        "source": request.program.source.decode("utf-8", "surrogateescape"),
        "target": str(request.target),
        "artifact_kind": request.artifact_kind.value,
        "options": request.options,
        "include_dirs": request.include_dirs,
        "name_expressions": request.name_expressions,
        "local_sizes": local_sizes,
        "headers": request.headers,
        "cwd": request.cwd,
    }
    return json.dumps(values, separators=(",", ":")).encode("ascii")


def _decode(key: CacheKey, values: Mapping[str, object]) -> MissedRequest:
    """Raises ValueError, KeyError, TypeError or TargetError for what was not written by ``_encode``."""
    sizes = values["local_sizes"]
    if not isinstance(sizes, list) or not all(isinstance(one, int) for size in sizes for one in size):
        raise TypeError("local sizes are lists of numbers")
    when_ns = values["when_ns"]
    if not isinstance(when_ns, int):
        raise TypeError("an instant is a number")
    source = _text(values["source"]).encode("utf-8", "surrogateescape")
    request = BuildRequest(
        program=Program(_text(values["program"]), Language(_text(values["language"])), source),
        target=Target.parse(_text(values["target"])),
        artifact_kind=ArtifactKind(_text(values["artifact_kind"])),
        local_sizes=tuple(tuple(size) for size in sizes),
        cwd=_text(values["cwd"]),
        options=_texts(values["options"]),
        include_dirs=_texts(values["include_dirs"]),
        name_expressions=_texts(values["name_expressions"]),
        headers=_texts(values["headers"]),
    )
    pairs = values["environment"]
    if not isinstance(pairs, list):
        raise TypeError("variables are a list")
    environment = tuple((_text(name), _text(value)) for name, value in pairs)
    rejected = values.get("rejected") is True
    return MissedRequest(key, when_ns, _text(values["command"]), request, environment, rejected)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("a list was expected")
    return tuple(map(_text, value))
