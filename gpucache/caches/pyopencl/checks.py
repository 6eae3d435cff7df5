"""What can be wrong with an entry, the lock or the folder, each with what comes of it. Changes nothing.

What PyOpenCL does with damage was tried on 2026.1: a missing or empty ``info`` is a warning and a rebuild;
any other damage is an exception in the caching, and its handler asks for a variable that is usually not
set (``os.environ["PYOPENCL_CACHE_FAILURE_FATAL"]``), so that the program ends with a KeyError. The files
are written in place under the lock: what is wrong while it is held may be half written.
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gpucache import payload
from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches import files, tally
from gpucache.caches.format import Clock
from gpucache.caches.pyopencl import entry_files, headers, locks, names, sources
from gpucache.caches.pyopencl.headers import Compared, State
from gpucache.caches.pyopencl.pickled import EndedError, Info
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.payload import PayloadKind
from gpucache.units import format_age, format_size, printable

DIES = "every program that builds it dies with KeyError: 'PYOPENCL_CACHE_FAILURE_FATAL', until it is removed"
_NAMES_LOOKED_AT = 100_000
_SHOWN = 4
_ADMINISTRATOR = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem of an entry, and what PyOpenCL makes of it."""

    kind: FindingKind
    detail: str
    mended: bool = True
    """Whether removing the entry mends it."""
    served: bool = False
    """Whether PyOpenCL serves the entry all the same."""

    @property
    def problem(self) -> Problem:
        """The problem alone."""
        return Problem(self.kind, self.detail)


def faults(inner: Folder) -> list[Fault]:
    """Everything about an entry's folder; raises OSError."""
    found = [*_foreign(inner), *_trust(inner)]
    if any(problem.kind is FindingKind.UNTRUSTED for problem in found):
        return found
    present = {one.name for one in islice(inner.entries(), _NAMES_LOOKED_AT)} & set(names.PARTS)
    if not present:
        detail = "it is empty, as a rebuild of it did not finish; PyOpenCL builds it at the next use"
        return [*found, Fault(FindingKind.ORPHAN, detail)]
    info = _info(inner, present)
    if isinstance(info, Fault):
        return [*found, info]
    return [*found, *_source(present), *binary(inner, present), *stale(info)]


def stale(info: Info) -> list[Fault]:
    """What became of the headers an entry was made with, as far as PyOpenCL will act on it."""
    compared = headers.compare_all(info.dependencies)
    return [Fault(FindingKind.STALE, detail, mended) for detail, mended in map(_header, compared) if detail]


def leftovers(root: Folder, clock: Clock) -> Iterator[tuple[Path, Problem]]:
    """The lock, a folder of another Python, and what lies among the entries; raises OSError."""
    python, own_python = names.python_of(root.path.name), names.own_python()
    age = locks.age_ns(root, clock)
    if age is not None:
        path = root.path / names.LOCK
        yield path, _lock(path, age, strange=locks.is_strange(root.lstat(names.LOCK)))
    if python and python != own_python:
        detail = (
            f"only programs of Python {python} use it, and this is {own_python}: after an upgrade nothing "
            "does; unless a Python of that version is in use, run "
            f"'gpucache evict --cache pyopencl:{root.path} --all'"
        )
        yield root.path, Problem(FindingKind.ORPHAN, detail)
    for one in islice(root.entries(), _NAMES_LOOKED_AT):
        with suppress(OSError):
            if python and not one.is_dir(follow_symlinks=False) and names.is_key(one.name):
                yield root.path / one.name, _in_the_way(one)
            elif python and one.name != names.LOCK and not names.is_key(one.name):
                detail = "it is none of PyOpenCL's; keep it elsewhere"
                yield root.path / one.name, Problem(FindingKind.LEFTOVER, detail)


def beside(root: Path) -> Iterator[tuple[Path, Problem]]:
    """What lies beside entries, or beside the folders of versions. Raises nothing."""
    if names.python_of(root.name):
        return  # there each is told by itself
    with suppress(OSError, ValueError), files.open_folder(root) as folder:
        found = (one.name for one in folder.entries() if one.name != names.LOCK)
        rest = (name for name in found if not (names.is_key(name) or names.python_of(name)))
        if told := tally.listed(rest):
            detail = f"it holds {told} as well, none of PyOpenCL's; keep it elsewhere"
            yield root, Problem(FindingKind.LEFTOVER, detail)


def _foreign(inner: Folder) -> list[Fault]:
    found = []
    for one in islice(inner.entries(), _NAMES_LOOKED_AT):
        if one.name not in names.PARTS:
            dies = f"; once it has to be rebuilt, {DIES}" if one.is_dir(follow_symlinks=False) else ""
            detail = f"{printable(one.name, None)} is none of PyOpenCL's{dies}; remove it"
            found.append(Fault(FindingKind.LEFTOVER, detail, mended=False, served=True))
    return found


def _trust(inner: Folder) -> list[Fault]:
    """Whom the folder and its files belong to: PyOpenCL unpickles ``info``, which can run anything."""
    found = [_distrust("its folder", inner.status())]
    for name in names.PARTS:
        with suppress(FileNotFoundError):
            found.append(_distrust(name, inner.lstat(name)))
    return [Fault(FindingKind.UNTRUSTED, detail) for detail in found if detail]


def _distrust(what: str, status: os.stat_result) -> str:
    """Why a file is not to be believed. A group that may write, as umask 002 gives, is the root's affair."""
    if stat.S_ISLNK(status.st_mode):
        return f"{what} is a link, which gpucache does not follow though PyOpenCL does"
    if sys.platform == "win32":
        return ""
    if status.st_uid not in (_ADMINISTRATOR, os.geteuid()):
        return f"{what} belongs to uid {status.st_uid}, and PyOpenCL runs what info says"
    if status.st_mode & stat.S_IWOTH:
        return f"anybody may write to {what}, and PyOpenCL runs what info says"
    return ""


def _source(present: set[str]) -> list[Fault]:
    if names.SOURCE in present:
        return []
    detail = f"{names.SOURCE} is missing; PyOpenCL serves the entry all the same, but nobody can say of what"
    return [Fault(FindingKind.ORPHAN, detail, served=True)]


def binary(inner: Folder, present: set[str]) -> list[Fault]:
    """What is wrong with the binary; raises OSError."""
    if names.BINARY not in present:
        return [Fault(FindingKind.TRUNCATED, f"binary is missing: {DIES}")]
    if _is_large(inner):
        return []
    try:
        data = entry_files.read_binary(inner)
    except FormatError as error:
        return [Fault(FindingKind.CORRUPT, f"{error}: {DIES}")]
    if not data:
        return [Fault(FindingKind.TRUNCATED, f"binary is empty: {DIES}")]
    info = payload.describe(data)
    if info.problem:
        return [Fault(FindingKind.CORRUPT, f"binary is broken, {info.problem}: {DIES}")]
    if info.kind is PayloadKind.UNKNOWN:
        # A platform that is not known here may write such a one, so it is nothing to be removed.
        detail = (
            f"binary begins with {data[:8].hex(' ')}, as that of no platform known here; "
            f"where that is damage, {DIES}, and evicting the entry mends it"
        )
        return [Fault(FindingKind.UNSUPPORTED, detail, mended=False, served=True)]
    return []


def _info(inner: Folder, present: set[str]) -> Info | Fault:
    """What the entry says of its build; without that PyOpenCL never comes to the binary."""
    if names.INFO not in present:
        detail = "info is missing, as its writing did not finish; PyOpenCL warns and builds it again"
        return Fault(FindingKind.ORPHAN, detail)
    try:
        if inner.lstat(names.INFO).st_size == 0:
            return Fault(FindingKind.TRUNCATED, "info is empty; PyOpenCL warns and builds it again")
        return entry_files.info_of(inner)
    except EndedError as error:
        return Fault(FindingKind.TRUNCATED, f"{error}: {DIES}")
    except FormatError as error:
        return Fault(FindingKind.CORRUPT, f"{error}; gpucache does not load it, PyOpenCL would")


def _header(compared: Compared) -> tuple[str, bool]:
    """What is worth knowing of a header, and whether removing the entry mends it; nothing if unchanged."""
    path, state = compared.path, compared.state
    if state in (State.SAME, State.UNREAD):
        return "", False
    if state is State.NOT_TEXT:
        return (
            f"{path} was touched and is not UTF-8, which PyOpenCL's comparison does not survive: {DIES}",
            True,
        )
    if state is State.MISSING:
        return f"{path} is no longer there; PyOpenCL builds it again at the next use", False
    return f"{path} was {state.value}; PyOpenCL builds it again at the next use", False


def _is_large(inner: Folder) -> bool:
    with suppress(FileNotFoundError):
        return inner.lstat(names.BINARY).st_size > entry_files.CHECKED_BINARY_BYTES
    return False


def notes(inner: Folder) -> Iterator[str]:
    """What could not be told of an entry."""
    if _is_large(inner):
        limit = format_size(entry_files.CHECKED_BINARY_BYTES)
        yield f"its binary is larger than {limit} and was not looked into"
    with suppress(OSError, FormatError):
        passed_over = sources.unfollowed(entry_files.read_source(inner))
        if passed_over:
            shown = ", ".join(passed_over[:_SHOWN]) + (" and more" if len(passed_over) > _SHOWN else "")
            yield (
                f"PyOpenCL keeps no record of {shown}, included by a macro or with a comment behind it: "
                "it serves the old binary when that changes"
            )


def _lock(path: Path, age_ns: int, *, strange: bool) -> Problem:
    age = format_age(age_ns)
    if strange:
        return Problem(
            FindingKind.MISPLACED,
            f"{path} is not PyOpenCL's lock, which is an empty file, but every program that builds waits "
            "60 s for it and then dies with KeyError: 'PYOPENCL_CACHE_FAILURE_FATAL'; move it elsewhere",
        )
    if age_ns > locks.STALE_NS:
        return Problem(
            FindingKind.MISPLACED,
            f"the lock {path} was left behind {age} ago by a program that was killed: every program that "
            "builds waits 60 s for it and then dies with KeyError: 'PYOPENCL_CACHE_FAILURE_FATAL'; run "
            f"'gpucache verify --cache {names.NAME} --repair'",
        )
    return Problem(
        FindingKind.LOCKED,
        f"the lock {path} was taken {age} ago, and a program holds it or was killed with it: others wait up "
        f"to 60 s for it; where it stays, run 'gpucache verify --cache {names.NAME} --repair' in two minutes",
    )


def _in_the_way(one: "os.DirEntry[str]") -> Problem:
    if one.is_symlink():
        return Problem(FindingKind.UNTRUSTED, "it is a link, which gpucache does not follow")
    return Problem(FindingKind.CORRUPT, f"it is no folder but has an entry's name; move it away: {DIES}")
