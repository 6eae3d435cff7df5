"""Closures remembered from one process to the next, each with all that it was found by.

A memo holds what the walk asked of the disk and the closure that came of it. It answers only where the
same is asked for, by the same code, and each question has its answer still, contents of headers included:
then the walk would come to this closure. So it spares the reading of texts and nothing else. Losing one
costs a walk. Must not know where memos are kept, nor what a closure is used for.
"""

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from gpucache.keys import digest
from gpucache.model import Closure, Include
from gpucache.sources.disk import Disk
from gpucache.sources.rules import Limits

WORTH_FILES = 8
"""With fewer headers a walk is as fast as a memo."""


def _code() -> str:
    """A digest of the modules that make a closure of texts; empty if they are no files."""
    with suppress(OSError):
        modules = sorted(Path(__file__).parent.glob("*.py"))
        return digest(b"\0".join(module.read_bytes() for module in modules)) if modules else ""
    return ""


_CODE = _code()


class Memos(Protocol):
    """Where memos are kept, each under 64 hex digits. Nothing here raises."""

    @property
    def keeps(self) -> bool:
        """Whether anything can be remembered; where not, nobody needs to make it ready."""
        ...

    def recall(self, name: str) -> bytes | None:
        """What was kept under a name, unharmed; None if nothing is."""
        ...

    def remember(self, name: str, data: bytes) -> None:
        """Keep something under a name; losing it is no error."""
        ...


def name_of(*given: object) -> str:
    """The name for what a closure is asked for, which is all that ``given`` shows by ``repr``.

    Paths are kept as text, so what they mean follows from the encoding of this process too.
    """
    return digest(repr((_CODE, sys.getfilesystemencoding(), given)).encode())


def recall(memos: Memos, name: str, limits: Limits, remedy: str) -> Closure | None:
    """The closure that was remembered, where the walk would find it again.

    Its reason for being uncacheable may tell the ``remedy``, so it has to be the same.
    """
    data = memos.recall(name) if _CODE else None
    if data is None:
        return None
    disk = Disk()
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        values = json.loads(data)
        same = values["name"] == name and (values["uncacheable"] is None or values["remedy"] == remedy)
        if same and disk.answers(values["asked"], limits.file_bytes):
            return _closure(values, disk)
    return None


def remember(memos: Memos, name: str, disk: Disk, closure: Closure, remedy: str) -> None:
    """Keep what a walk found, where that is worth a file."""
    if not memos.keeps or len(closure.files) < WORTH_FILES or disk.failed or not _CODE:
        return
    values = {
        "name": name,
        "asked": disk.asked,
        "includes": [(include.name, include.digest) for include in closure.includes],
        "resolution": closure.resolution,
        "uncacheable": closure.uncacheable,
        "remedy": remedy,
        "files": closure.files,
        "tells_places": closure.tells_places,
    }
    memos.remember(name, json.dumps(values, separators=(",", ":")).encode("ascii"))


def _closure(values: Mapping[str, object], disk: Disk) -> Closure:
    """Raises TypeError, ValueError or KeyError for what was not written by ``remember``."""
    includes, files = values["includes"], values["files"]
    resolution, uncacheable = values["resolution"], values["uncacheable"]
    if not isinstance(includes, list) or not isinstance(files, list) or not isinstance(resolution, str):
        raise TypeError("a closure has lists of includes and files, and a digest")
    if not isinstance(uncacheable, str | None):
        raise TypeError("the reason is a text or null")
    return Closure(
        tuple(Include(name, content) for name, content in includes),
        resolution,
        uncacheable,
        tuple(map(str, files)),
        tuple(disk.stamps),
        values["tells_places"] is True,
    )
