"""Closures remembered from one process to the next, each with the questions asked to find it.

A memo stores the questions of the walk to the disk, the answers, and the closure that it found. It is used
only if the request and this code are the same and every question still has the same answer, including the
contents of headers: a walk would find the same closure. So a memo saves only the scanning of texts.
Losing one costs a walk. Must not know where memos are stored or the use of a closure.
"""

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol, overload

from xxhash import xxh3_128_hexdigest

from gpucache.host.file_stamps import is_settled as is_settled_file
from gpucache.host.file_stamps import stamp_of
from gpucache.keys import Asked, Closure, Include, Stamps, digest
from gpucache.sources.disk import NO_FILE, Disk, changed_itself_ns, on_the_way
from gpucache.sources.rules import Limits

_LIMITS = Limits()
WORTH_FILES = 8
"""With fewer headers a walk is as fast as a memo."""


@cache
def _code() -> str:
    """The digest of this package's modules; empty if they are not files, as in an archive."""
    with suppress(OSError):
        folder = Path(__file__).parent
        modules = sorted(name for name in os.listdir(folder) if name.endswith(".py"))  # noqa: PTH208
        texts = [(folder / name).read_bytes() for name in modules]
        return xxh3_128_hexdigest(b"\0".join(texts)) if modules else ""
    return ""


class Memos(Protocol):
    """The store of memos, each under 64 hex digits. Nothing in this class raises."""

    @property
    def keeps(self) -> bool:
        """Whether anything can be remembered; if not, callers need not prepare it."""

    def recall(self, name: str) -> bytes | None:
        """The data stored under a name, undamaged; None if there is none."""

    def remember(self, name: str, data: bytes) -> None:
        """Store data under a name; losing it is not an error."""


def name_of(*given: object) -> str:
    """The name of a memo, made of the ``repr`` of everything in ``given``.

    Paths are stored as text, so their meaning also depends on the encoding of this process.
    """
    return digest(repr((_code(), sys.getfilesystemencoding(), given)).encode())


def recall(memos: Memos, name: str, limits: Limits, remedy: str, *, light: bool = False) -> Closure | None:
    """The remembered closure; None if there is none, or if a walk might find another one.

    The reason for being uncacheable may name the ``remedy``, so this must be the same. With ``light``, files
    whose stamps are unchanged are not read, and the closure has no stamps.
    """
    data = memos.recall(name) if _code() else None
    if data is None:
        return None
    import json  # most programs have no memo

    disk = Disk()
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        found, _, asked = data.partition(b"\n")
        values = json.loads(found)
        if values["name"] != name or (values["uncacheable"] is not None and values["remedy"] != remedy):
            return None
        if light and values["stood"] is not None and _stands(values["stood"]):
            return _closure(values, None, _Late(asked))
        if disk.answers(json.loads(asked), limits.file_bytes) and not disk.of_process:
            return _closure(values, tuple(disk.stamps), tuple(disk.asked))
    return None


class _Late(Sequence[Asked]):
    """Questions that are parsed from their JSON on first use."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @cached_property
    def _asked(self) -> tuple[Asked, ...]:
        import json

        return tuple((question, path, answer) for question, path, answer in json.loads(self._data))

    def __len__(self) -> int:
        return len(self._asked)

    @overload
    def __getitem__(self, place: int) -> Asked: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Asked, ...]: ...
    def __getitem__(self, place: int | slice) -> Asked | tuple[Asked, ...]:
        return self._asked[place]


def _stood(disk: Disk) -> object:
    """The state that a later process compares instead of asking again; None if a file is too young."""
    contents = disk.contents.items()
    if not all(is_settled_file(path, status, disk.began_ns) for path, status in contents):
        return None
    seen = {path: status for path, status in disk.seen.items() if path not in disk.contents}
    return {
        "read": [(os.fsdecode(path), *stamp_of(status)) for path, status in contents],
        "there": [
            (os.fsdecode(path), status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode))
            for path, status in seen.items()
            if status is not None
        ],
        "absent": [os.fsdecode(path) for path, status in seen.items() if status is None],
        "others": [row for row in disk.asked if row[0] in ("list", "real") or row == ("read", row[1], "")],
    }


def _stands(stood: Mapping[str, list[Any]]) -> bool:
    """Whether all is unchanged; raises OSError for a missing file, TypeError, ValueError, KeyError."""
    look = os.stat
    for path, *stamp in stood["read"]:
        status = look(path)
        if stamp != [
            status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns, status.st_mtime_ns
        ]:  # fmt: skip
            return False
    for path, device, inode, kind in stood["there"]:
        status = look(path)
        if (status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode)) != (device, inode, kind):
            return False
    for path in stood["absent"]:
        try:
            look(path)
        except OSError as error:
            if error.errno in NO_FILE:
                continue
        return False
    return Disk().answers(stood["others"], 0)


def still_closure(closure: Closure, limits: Limits = _LIMITS) -> Closure | None:
    """The closure with current stamps if the walk would find it again, else None."""
    if closure.asked == ():
        return closure
    disk = Disk()
    with suppress(OSError, ValueError):
        if (
            closure.asked is not None
            and disk.answers(closure.asked, limits.file_bytes)
            and not disk.of_process
        ):
            return closure._replace(stamps=tuple(disk.stamps))
    return None


def is_settled(closure: Closure, instant_ns: int) -> bool:
    """Whether a walk at a given instant, in nanoseconds since 1970, would have found the same closure.

    It would if each file and directory that was examined is older, and so are their parent directories up to
    the searched one and the links on the way; and if no directory above was moved since. For a missing
    path the nearest existing directory counts.
    """
    searched = tuple(
        f"{path.rstrip('/')}/" for question, path, _ in closure.asked or () if question == "watch"
    )
    newest: dict[str, int] = {}

    def age(path: str) -> int:
        if path not in newest:
            try:
                status = os.stat(path)  # noqa: PTH116 - asked thousands of times
                newest[path] = max(status.st_mtime_ns, status.st_ctime_ns)
            except OSError:
                above = os.path.dirname(path)  # noqa: PTH120
                newest[path] = age(above) if above != path else instant_ns
        return newest[path]

    passed = set[str]()
    places: dict[str, None] = {}
    for question, path, _ in closure.asked or ():
        if any(changed_itself_ns(status) >= instant_ns for _, status in on_the_way(path, passed)):
            return False
        # A build option has no path. The targets of links are covered by the paths that are looked up there.
        if not path or question == "real":
            continue
        places[path] = None
        above = os.path.dirname(path)  # noqa: PTH120
        while above not in places and above.startswith(searched):
            places[above] = None
            above = os.path.dirname(above)  # noqa: PTH120
        places[above] = None
    return closure.asked is not None and all(age(path) < instant_ns for path in places)


def remember(
    memos: Memos, name: str, disk: Disk, closure: Closure, remedy: str, *, few: bool = False
) -> None:
    """Store the result of a walk if it is worth a file, as ``few`` headers are for the first of a process."""
    is_small = len(closure.files) < WORTH_FILES and not few
    if not memos.keeps or is_small or disk.failed or disk.of_process or not _code():
        return
    import json

    values = {
        "name": name,
        "includes": [(include.name, include.digest) for include in closure.includes],
        "resolution": closure.resolution,
        "uncacheable": closure.uncacheable,
        "remedy": remedy,
        "files": closure.files,
        "tells_places": closure.tells_places,
        "tells_name": closure.tells_name,
        "renames": closure.renames,
        "stood": _stood(disk),
    }
    text = "\n".join(json.dumps(one, separators=(",", ":")) for one in (values, disk.asked))
    memos.remember(name, text.encode("ascii"))


def _closure(values: Mapping[str, object], stamps: Stamps | None, asked: Sequence[Asked]) -> Closure:
    """Parse a closure; raises TypeError, ValueError or KeyError for data not written by ``remember``."""
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
        stamps,
        asked,
        values["tells_places"] is True,
        values["tells_name"] is True,
        values["renames"] is True,
    )
