"""An entry of PyOpenCL's cache: its three files, their possible damage, and the headers of its build.

``info`` is ``pickle.dump(_SourceInfo(dependencies, log))``, and PyOpenCL loads it with ``pickle.load``, which
calls any function that the file names. It is read as data: the class is never looked up. A header is
unchanged when its mtime is, or else when its MD5 is: recorded of its bytes, compared of its text, so that
CR LF becomes LF on the way and non-UTF-8 bytes raise. Paths come from a foreign file: only regular files of
bounded size are read.

PyOpenCL's treatment of damage was tried on 2026.1: a missing or empty ``info`` is a warning and a rebuild;
any other damage is an exception in the caching, and its handler asks for a variable that is usually not set
(``os.environ["PYOPENCL_CACHE_FAILURE_FATAL"]``), so that the program ends with a KeyError. Source:
``_create_built_program_from_source_cached``, ``check_dependencies``, ``get_file_md5sum`` and
``get_dependencies`` in ``pyopencl/cache.py``.

A file ``lock`` exists while a program reads or writes the cache. Source: ``CacheLockManager``. It is taken by
O_CREAT | O_EXCL and is empty, so its holder is unknown; a killed program leaves it behind. A holder needs it
for the time of reading or writing three files, and a waiter gives up after 60 s. A file of that name that is
not empty belongs to another program: it stops every program as well, and is never removed.
"""

import hashlib
import re
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gpucache import payload
from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches import files, pickles
from gpucache.caches.format import Clock, HeldError
from gpucache.caches.pyopencl.locations import LOCK
from gpucache.errors import FormatError
from gpucache.folders import Folder, is_own
from gpucache.payload import PayloadInfo, PayloadKind
from gpucache.units import format_age, format_size, printable

SOURCE, BINARY, INFO = "source.cl", "binary", "info"
PARTS = (SOURCE, BINARY, INFO)
LARGEST_SOURCE_BYTES = 64 << 20
LARGEST_BINARY_BYTES = 1 << 30
CHECKED_BINARY_BYTES = 256 << 20
DIES = "every program that builds it dies with KeyError: 'PYOPENCL_CACHE_FAILURE_FATAL', until it is removed"
NO_SOURCE = Problem(
    FindingKind.ORPHAN,
    f"{SOURCE} is missing; PyOpenCL still serves the entry, but its source is unknown",
)
_LARGEST_INFO_BYTES = 8 << 20
_LARGEST_HEADER_BYTES = 16 << 20
_HEADERS_BYTES = 128 << 20
_NAMES_LOOKED_AT = 100_000
_INCLUDES = 1000
_SHOWN = 4
_ADMINISTRATOR = 0

# The source.

_CONSTANT = rb"pyopencl_defeat_cache_[0-9a-f]{32}"
_ADDED = re.compile(rb"\n\n__constant int (%s) = 0;\Z" % _CONSTANT)
_ADDED_BYTES = len("\n\n__constant int pyopencl_defeat_cache_ = 0;") + 32
# PyOpenCL's own C_INCLUDE_RE, applied line by line: an include followed by anything is not seen.
_FOLLOWED = re.compile(
    rb"""^[ \t\r\f\v]*+#[ \t\r\f\v]*+include[ \t\r\f\v]++[<"](.+)[">][ \t\r\f\v]*$""", re.MULTILINE
)
_ANY = re.compile(
    rb"""^[ \t\r\f\v]*+#[ \t\r\f\v]*+include[ \t\r\f\v]*+(?:[<"]([^>"\n]{1,1024})[>"]|(\w{1,128}))""",
    re.MULTILINE,
)


def read_source(inner: Folder) -> bytes:
    """The source as its program wrote it; raises FormatError, OSError."""
    return as_written(files.read(inner, SOURCE, LARGEST_SOURCE_BYTES))


def as_written(stored: bytes) -> bytes:
    """A stored source as its program wrote it, without the line that defeats the driver's own cache."""
    ending = _ending(stored)
    return stored if ending is None else stored[: ending.start()]


def _ending(stored: bytes) -> re.Match[bytes] | None:
    """The line that PyOpenCL adds to a source: a constant with a random name."""
    return _ADDED.search(stored, max(0, len(stored) - _ADDED_BYTES))


def followed(source: bytes) -> Iterator[bytes]:
    """The headers for which PyOpenCL stores a checksum, as spelled."""
    return (match[1] for match in islice(_FOLLOWED.finditer(source), _INCLUDES))


def unfollowed(source: bytes) -> tuple[str, ...]:
    """Headers, and macros for them, in include lines that PyOpenCL skips."""
    seen = set(followed(source))
    found = dict.fromkeys(match[1] or match[2] for match in islice(_ANY.finditer(source), _INCLUDES))
    return tuple(printable(name) for name in found if name not in seen)


# The record of the build.

_OPTIONS = re.compile(r"^Options used by backend compiler: (.{0,65536})$", re.MULTILINE)
_NAMES = pickles.Names.of("PyOpenCL", r"pyopencl\.cache:_SourceInfo")


class EndedError(FormatError):
    """The bytes end inside a value."""


class Dependency(NamedTuple):
    """A header from which an entry was made."""

    path: str
    mtime: float
    """Seconds since 1970, as in ``st_mtime``."""
    md5: str


class BuildRecord(NamedTuple):
    """An entry's record of its build."""

    dependencies: tuple[Dependency, ...] = ()
    log: str = ""

    @property
    def options(self) -> str | None:
        """The options in the build log, joined in one line; only Intel's compilers write them there."""
        match = _OPTIONS.search(self.log)
        return match[1] if match is not None and match[1].isprintable() else None


def info_of(inner: Folder) -> BuildRecord:
    """The entry's record of its build; raises FormatError, OSError."""
    return read_info(files.read(inner, INFO, _LARGEST_INFO_BYTES))


def read_info(data: bytes) -> BuildRecord:
    """The first value of an ``info`` file, as PyOpenCL reads it; raises FormatError for anything else,
    EndedError if it is cut."""
    found, wrong = pickles.values(data, 1, _NAMES)
    if wrong:
        raise (EndedError if wrong.kind is FindingKind.TRUNCATED else FormatError)(f"info {wrong.detail}")
    rest = found[found.index("dependencies") + 1 :] if "dependencies" in found else []
    if len(rest) % 3 == 1:  # without a log
        rest.append("")
    if len(rest) % 3 != 2 or rest[-2] != "log":
        raise FormatError("info contains something other than the dependencies and the log of a build")
    *rest, _, log = rest
    triples = list(zip(rest[::3], rest[1::3], rest[2::3], strict=True))
    dependencies = tuple(
        Dependency(path, mtime, md5)
        for path, mtime, md5 in triples
        if isinstance(path, str) and isinstance(mtime, float) and isinstance(md5, str)
    )
    if len(dependencies) < len(triples) or not isinstance(log, str):
        raise FormatError("info contains other dependencies than paths, times and checksums")
    return BuildRecord(dependencies, log)


# The binary.

_HEADERS = re.compile(r'-I ?"?((?:(?! -I).)+)[/\\]pyopencl[/\\]cl(?=[ "]|$)')
_UNKNOWN = PayloadKind.UNKNOWN
_DEVICES = {PayloadKind.INTEL_CPU: "Intel CPU", PayloadKind.INTEL_GPU: "Intel GPU"}


def installed_at(options: str) -> str:
    """The directory of the PyOpenCL that built an entry, from its options, or empty."""
    match = _HEADERS.search(options)
    return match[1] if match else ""


def device_of(info: PayloadInfo) -> str:
    """The device facts in a binary; empty if it has none."""
    if info.architecture is not None:
        return info.architecture
    told = dict(info.detail)
    return told.get("device", "") if info.kind is PayloadKind.RUSTICL else _DEVICES.get(info.kind, "")


def binary(inner: Folder, present: set[str], *, intel: bool = False) -> list[Problem]:
    """The problem of the binary, which ``intel`` says is Intel's; raises OSError."""
    try:
        if BINARY in present and _is_large(inner):
            return []
        data = files.read(inner, BINARY, LARGEST_BINARY_BYTES) if BINARY in present else b""
    except FormatError as error:
        return [Problem(FindingKind.CORRUPT, f"{error}: {DIES}")]
    if not data:
        what = "empty" if BINARY in present else "missing"
        return [Problem(FindingKind.TRUNCATED, f"binary is {what}: {DIES}")]
    info, start = payload.describe(data, inside=2), f"it begins with {data[:8].hex(' ')}"
    if wrong := info.problem or (f"{start}, unlike Intel's" if intel and info.kind is _UNKNOWN else ""):
        return [Problem(FindingKind.CORRUPT, f"binary is broken, {wrong}: {DIES}")]
    if info.kind is _UNKNOWN:  # an unknown platform may write such a binary, so it is not removed
        detail = f"binary is of no known platform, {start}; if that is damage, {DIES}; evict it then"
        return [Problem(FindingKind.UNSUPPORTED, detail, paths=())]
    # Drivers keep the name of the constant, which no other build has.
    constant, kept = _constant(inner), set(re.findall(_CONSTANT, data))
    if constant and kept and constant not in kept:
        detail = f"binary was built from another source than {SOURCE}: programs find other kernels or none"
        return [Problem(FindingKind.MISLABELLED, detail)]
    return []


def _constant(inner: Folder) -> bytes:
    """The name of the constant in the source, or empty."""
    with suppress(OSError, FormatError):
        if ending := _ending(files.read(inner, SOURCE, LARGEST_SOURCE_BYTES)):
            return ending[1]
    return b""


def _is_large(inner: Folder) -> bool:
    with suppress(FileNotFoundError):
        return inner.lstat(BINARY).st_size > CHECKED_BINARY_BYTES
    return False


# Headers.


def changed(dependencies: Sequence[Dependency]) -> Iterator[tuple[Dependency, str | None, Problem]]:
    """The headers that PyOpenCL sees as changed, with their MD5 now, None if they are gone, and the problem.

    A header of the same time is unchanged, else its MD5 counts. Those beyond 128 MiB in all, and those that
    cannot be read, are not compared.
    """
    budget = _HEADERS_BYTES
    for one in dict.fromkeys(dependencies):
        path, found, text = printable(one.path, None), None, True
        try:
            if budget <= 0 or Path(one.path).stat().st_mtime == one.mtime:
                continue
            data = _read_header(Path(one.path))
            budget, found = budget - len(data), _md5_of_text(data)
            text = found is not None
        except (FileNotFoundError, NotADirectoryError, ValueError):
            pass
        except (OSError, FormatError):
            continue
        if not text:
            what = "was touched and is not UTF-8, which PyOpenCL's comparison does not survive"
            yield one, "not UTF-8", Problem(FindingKind.STALE, f"{path} {what}: {DIES}")
        elif found != one.md5:
            detail = f"{path} changed or is gone; PyOpenCL builds it again at the next use"
            yield one, found, Problem(FindingKind.STALE, detail, paths=())


def differing(source: bytes, dependencies: Sequence[Dependency]) -> str:
    """Why a build here could read other headers than the entry's did: one is missing, has changed, or is not
    recorded in the entry. Empty if none."""
    texts, budget = [source], _HEADERS_BYTES
    for dependency in dict.fromkeys(dependencies):
        path = printable(dependency.path, None)
        try:
            texts.append(_read_header(Path(dependency.path)))
        except (OSError, ValueError, FormatError):
            return f"{path} cannot be read"
        budget -= len(texts[-1])
        if budget < 0 or _md5_of_text(texts[-1]) != dependency.md5:
            return f"{path} differs on this machine"
    paths = [dependency.path.replace("\\", "/") for dependency in dependencies]
    for match in (match for text in texts for match in _ANY.finditer(text)):
        name = (match[1] or match[2]).decode(errors="replace")
        if not any(path.endswith("/" + name.removeprefix("./")) for path in paths):
            return f"PyOpenCL has no record of {printable(name)}, which may be another elsewhere"
    return ""


def _read_header(path: Path) -> bytes:
    with files.open_folder(path.parent) as folder:
        return files.read(folder, path.name, _LARGEST_HEADER_BYTES)


def _md5_of_text(data: bytes) -> str | None:
    """The MD5 of a header as PyOpenCL reads it, with CR LF as LF; None if it is not UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    plain = text.replace("\r\n", "\n").replace("\r", "\n").encode()
    return hashlib.md5(plain, usedforsecurity=False).hexdigest()


# The whole entry.


def problems(inner: Folder) -> list[Problem]:
    """All problems of an entry's directory; ``paths`` is empty if removal does not help. Raises OSError."""
    found = [*_foreign(inner), *_trust(inner)]
    if any(problem.kind is FindingKind.UNTRUSTED for problem in found):
        return found
    present = {one.name for one in islice(inner.entries(), _NAMES_LOOKED_AT)} & set(PARTS)
    if not present:
        detail = "it is empty, as a rebuild of it did not finish; PyOpenCL builds it at the next use"
        return [*found, Problem(FindingKind.ORPHAN, detail)]
    info = _info(inner, present)
    if isinstance(info, Problem):
        return [*found, info]
    stale = (problem for _, _, problem in changed(info.dependencies))
    source = [] if SOURCE in present else [NO_SOURCE]
    return [*found, *source, *binary(inner, present, intel=info.options is not None), *stale]


def served(problem: Problem) -> bool:
    """Whether PyOpenCL still serves an entry."""
    return problem == NO_SOURCE or problem.kind in (FindingKind.LEFTOVER, FindingKind.UNSUPPORTED)


def notes(inner: Folder) -> Iterator[str]:
    if _is_large(inner):
        yield f"its binary is larger than {format_size(CHECKED_BINARY_BYTES)} and was not inspected"
    with suppress(OSError, FormatError):
        passed_over = unfollowed(read_source(inner))
        if passed_over:
            shown = ", ".join(passed_over[:_SHOWN]) + (" and more" if len(passed_over) > _SHOWN else "")
            yield (
                f"PyOpenCL keeps no record of {shown}, included by a macro or with a comment behind it: "
                "it serves the old binary when that changes"
            )


def _foreign(inner: Folder) -> Iterator[Problem]:
    for one in islice(inner.entries(), _NAMES_LOOKED_AT):
        if one.name not in PARTS:
            dies = f"; once it has to be rebuilt, {DIES}" if one.is_dir(follow_symlinks=False) else ""
            detail = f"{printable(one.name, None)} is not PyOpenCL's{dies}; remove it"
            yield Problem(FindingKind.LEFTOVER, detail, paths=())


def _trust(inner: Folder) -> Iterator[Problem]:
    """Untrusted owners and modes of the directory and its files: PyOpenCL unpickles ``info``.
    A group that may write, as with umask 002, is a problem of the root."""
    statuses = {"its directory": inner.status()}
    for name in PARTS:
        with suppress(FileNotFoundError):
            statuses[name] = inner.lstat(name)
    for what, status in statuses.items():
        others = sys.platform != "win32" and (
            status.st_mode & stat.S_IWOTH or not (status.st_uid == _ADMINISTRATOR or is_own(status))
        )
        if stat.S_ISLNK(status.st_mode) or others:
            why = f"belongs to uid {status.st_uid}, is a link, or any user may write to it"
            detail = f"{what} {why}, and PyOpenCL runs the code in info"
            yield Problem(FindingKind.UNTRUSTED, detail)


def _info(inner: Folder, present: set[str]) -> BuildRecord | Problem:
    """The entry's record of its build; without that PyOpenCL never reads the binary."""
    if INFO not in present:
        detail = "info is missing, as its writing did not finish; PyOpenCL warns and builds it again"
        return Problem(FindingKind.ORPHAN, detail)
    try:
        if inner.lstat(INFO).st_size == 0:
            return Problem(FindingKind.TRUNCATED, "info is empty; PyOpenCL warns and builds it again")
        return info_of(inner)
    except EndedError as error:
        return Problem(FindingKind.TRUNCATED, f"{error}: {DIES}")
    except FormatError as error:
        return Problem(FindingKind.CORRUPT, f"{error}; gpucache does not load it, PyOpenCL would")


STALE_NS = 120 * 10**9
"""A lock older than twice the time for which programs wait is abandoned."""
_REPAIR = "'gpucache verify --cache pyopencl --repair'"
_ATTEMPTS, _PAUSE_S = 5, 0.05


def obstacle(folder: Folder, clock: Clock) -> Problem | None:
    """The problem of an existing lock, and its effect; None if it is free. Raises OSError.

    Its kind is ``LOCKED`` while a program may have it; ``paths`` is empty if it is not a lock.
    """
    try:
        seen = folder.lstat(LOCK)
    except FileNotFoundError:
        return None
    path, age_ns = folder.path / LOCK, max(0, clock() - seen.st_mtime_ns)
    waits = (
        "every program that builds waits 60 s for it and then dies with KeyError: "
        "'PYOPENCL_CACHE_FAILURE_FATAL'"
    )
    if not stat.S_ISREG(seen.st_mode) or seen.st_size:
        detail = f"{path} is not PyOpenCL's lock, which is an empty file, but {waits}; move it elsewhere"
        return Problem(FindingKind.MISPLACED, detail, paths=())
    age = format_age(age_ns)
    if age_ns > STALE_NS:
        what = f"the lock {path} was left behind {age} ago by a program that was killed"
        return Problem(FindingKind.MISPLACED, f"{what}: {waits}; run {_REPAIR}")
    return Problem(
        FindingKind.LOCKED,
        f"the lock {path} was taken {age} ago, and a program has it or was killed with it: others wait up "
        f"to 60 s for it; if it stays, run {_REPAIR} in two minutes",
    )


@contextmanager
def held(path: Path, clock: Clock) -> Iterator[None]:
    """The lock of a directory, taken as PyOpenCL takes it; raises HeldError, OSError."""
    with files.open_folder(path) as folder, ExitStack() as stack:
        for _ in range(_ATTEMPTS):
            with suppress(FileExistsError):
                stack.enter_context(files.held_by_name(folder, LOCK, 0o644))
                break
            if (found := obstacle(folder, clock)) and found.kind is not FindingKind.LOCKED:
                raise HeldError(found.detail)
            time.sleep(_PAUSE_S)
        else:
            raise HeldError("PyOpenCL's lock is held; try again once the program that has it is done")
        yield


def free_stale(folder: Folder, clock: Clock) -> bool:
    """Remove an abandoned lock; True if no such lock exists now. Raises OSError."""
    found = obstacle(folder, clock)
    if found is None or (found.kind is FindingKind.MISPLACED and found.paths is None):
        with suppress(FileNotFoundError):
            folder.unlink(LOCK)
        return True
    return False
