"""A root in one file: a tar file with the entries and records of a root, and nothing else.

It is read at once into a private directory, in memory where there is one, which is the root for this process
and its children. When that has changed, the file is written anew, atomically. Several processes may use one
file: each adds its new entries to the file as it is by then. A process that is killed loses only its own.
Entries that newer ones superseded, and records of entries that are gone, are left out, so it does not grow.

Owns that format and these moments. Must not know who uses the root. Only regular files whose place and name
a root has are read from it; what follows damage is lost, and a file that is not ours is never replaced.
"""

import atexit
import os
import re
import stat
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gpucache.errors import CacheUnusableError, FormatError, GpucacheError, UsageError
from gpucache.folders import Folder
from gpucache.host import os_errors, scratch
from gpucache.model import EntryHead
from gpucache.store import layout
from gpucache.store.format import MAGIC, TOTAL_CAP
from gpucache.store.records import Row, encode, references_of, rows_of
from gpucache.store.root_folder import RECENCY_NS, UNUSABLE, RootFolder
from gpucache.store.trust import UntrustedFileError, distrust, open_trusted
from gpucache.units import format_list

FILE_BYTES_CAP = 4 << 30
"""A larger file is not read: it is not the cache of one program."""
MEMBERS_CAP = 50_000
_RECORD_BYTES_CAP = 8 << 20
UNPACKED = "GPUCACHE_RUN_UNPACKED"
"""The variable with a directory into which ``native/run.c`` has unpacked a file, after its lock's number."""
_BLOCK = 512
_NAME_BYTES = 100
_EMPTY_BYTES = 20 * _BLOCK
_FRONT = _BLOCK + len(MAGIC)
_HEADER = struct.Struct("100s8s8s8s12s12s8s1s100s8s247x")
_SUM = slice(148, 156)
_RECORDS = (layout.ROWS, layout.MISSED, layout.PROGRAMS, layout.BASE)
_BEGINNINGS = tuple("/".join((*place, "")).encode() for place in (layout.ENTRIES, *_RECORDS[:-1]))
_HEX_KEY = re.compile(rb"[0-9a-f]{64}")
_KEY_BYTES = 32
_ROW, _MEMO, _MISSED = ".row", ".memo", ".json"
_WAIT_S = 5.0
_NAME_CAP = 40
"""How many characters of the file's name its directory has, so that messages make sense."""
_DAY_NS = 24 * 3600 * 10**9
_UNUSED_NS = 30 * _DAY_NS


class Member(NamedTuple):
    """A file of a root, by its place below it."""

    place: tuple[str, ...]
    name: str
    used_ns: int

    @property
    def path(self) -> str:
        return "/".join((*self.place, self.name))

    @property
    def is_entry(self) -> bool:
        """Whether it is an entry, not a record."""
        return self.place[:-1] == layout.ENTRIES


class Written(NamedTuple):
    """The result of writing a file."""

    path: Path
    entries: int = 0
    size_bytes: int = 0
    changed: bool = False
    """Whether it was written anew."""
    problem: str = ""
    """Why it was not written although it should have been, in one sentence; it is as it was.

    Empty if an attempt before had the same problem, so that every sentence is told once.
    """


def is_root_file(path: Path) -> bool:
    """Whether a path is such a file, possibly damaged. Raises nothing."""
    with suppress(OSError, ValueError):
        if stat.S_ISREG(path.stat().st_mode):  # a FIFO would wait for its other end
            with path.open("rb") as file:
                return _is_ours(file)
    return False


def _is_ours(file: BinaryIO) -> bool:
    """Whether an open file is such a file, although some of it may be damaged; raises OSError.

    A tar file without members is a few blocks of zeros; more of them may be anything, such as a disk's image.
    """
    front = file.read(_FRONT)
    name, end, rest = front[:_NAME_BYTES].partition(b"\0")
    if name == f"{layout.VERSION_FOLDER}/".encode():
        with suppress(FormatError):  # packed by tar: a tar file of others may have such a directory
            return any(True for _ in members(file))
    of_root = name.startswith(_BEGINNINGS) and bool(end) and not rest.strip(b"\0")
    is_empty = bool(front) and not front.strip(b"\0") and os.fstat(file.fileno()).st_size <= _EMPTY_BYTES
    return of_root or front[_BLOCK:] == MAGIC or is_empty


def members(file: BinaryIO) -> Iterator[tuple[Member, bytes]]:
    """The files of a root in an open tar file; raises FormatError where it is damaged, OSError."""
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    for _ in range(MEMBERS_CAP):
        at, block = file.tell(), file.read(_BLOCK)
        if not block.strip(b"\0") and len(block) == _BLOCK:
            return
        try:
            name, _, _, _, size, changed, checksum, kind, *_ = _HEADER.unpack(block)
            true = _octal(checksum) == sum(block) - sum(block[_SUM]) + 8 * ord(" ")
            *place, name = name.rstrip(b"\0").decode("ascii").split("/")
            member, size_bytes = Member(tuple(place), name, _octal(changed) * 10**9), _octal(size)
        except (struct.error, ValueError):
            true = False
        if not true:
            raise FormatError(f"is damaged at byte {at}")
        if kind in (b"\0", b"0") and _is_in_root(member, size_bytes):
            yield member, file.read(min(size_bytes, end - file.tell()))
        file.seek(at + _BLOCK + size_bytes + -size_bytes % _BLOCK)
    raise FormatError(f"has more than {MEMBERS_CAP} files")


def _octal(text: bytes) -> int:
    if not re.fullmatch(rb"[0-7]*", text := text.strip(b"\0 ")):  # int also takes a sign
        raise ValueError
    return int(text or b"0", 8)


def _is_in_root(member: Member, size_bytes: int) -> bool:
    if member.is_entry:
        return layout.fits(member.place[-1], member.name) and size_bytes <= TOTAL_CAP
    known = member.place in _RECORDS and layout.is_beside(member.place, member.name)
    known = known and not layout.is_left(member.name)
    return known and size_bytes <= _RECORD_BYTES_CAP


def packed(files: Iterable[tuple[Member, bytes]]) -> Iterator[bytes]:
    """The bytes of a tar file with some files, in pieces."""
    for member, data in files:
        size, changed = b"%011o\0" % len(data), b"%011o\0" % max(0, member.used_ns // 10**9)
        mode, none, blank, ustar = b"0000600\0", b"0000000\0", b" " * 8, b"ustar\x0000"
        fields = [member.path.encode("ascii"), mode, none, none, size, changed, blank, b"0", b"", ustar]
        fields[6] = b"%06o\0 " % sum(_HEADER.pack(*fields))
        yield from (_HEADER.pack(*fields), data, bytes(-len(data) % _BLOCK))
    yield bytes(2 * _BLOCK)


def chosen(
    root: RootFolder,
    choose: Callable[[Mapping[Member, EntryHead]], Collection[Member]],
    without: tuple[str, ...] = (),
) -> list[Member]:
    """The chosen sound entries of a root, and the records that belong to them, without some kinds.

    Raises CacheUnusableError.
    """
    from gpucache.store.scan import by_head, scan

    heads = {
        Member((*layout.ENTRIES, one.name[:2]), one.name, one.identity.mtime_ns): one.head
        for one in scan(root, by_head)
        if one.head is not None
    }
    entries = sorted(choose(heads))
    keys = _keys(entries)
    programs = {layout.FIRST_HISTORY, *(layout.history_name(heads[one].program) for one in entries)}
    found = entries[:]
    for place in _RECORDS:
        records = []
        with suppress(*UNUSABLE), root.open(*place) as folder:
            for name in [one.name for one in folder.entries()]:
                with suppress(OSError), open_trusted(folder, name) as (fd, status):
                    member = Member(place, name, status.st_mtime_ns)
                    if not _is_in_root(member, status.st_size) or name.endswith(without):
                        continue
                    belongs = place != layout.PROGRAMS or name in programs
                    if name.endswith(_ROW) and place == layout.ROWS:
                        data = os.read(fd, status.st_size)
                        belongs = _names_any(data, keys) or any(map(_names_none, rows_of(data) or ()))
                    records += [member] * belongs
        memos = sorted((one for one in records if one.name.endswith(_MEMO)), key=lambda one: one.used_ns)
        # These name no entry: the last ones stay, as many as there are entries.
        found += sorted({*records}.difference(memos[: max(0, len(memos) - len(entries))]))
    return found


def _keys(entries: Iterable[Member]) -> set[bytes]:
    return {bytes.fromhex(one.name.removesuffix(layout.ENTRY_SUFFIX)) for one in entries}


def _names_any(record: bytes, keys: Collection[bytes]) -> bool:
    """Whether a row, which names entries by the bytes of their keys, names one of these."""
    return any(record[at : at + _KEY_BYTES] in keys for at in range(len(record)))


def _names_none(row: Row) -> bool:
    """Whether a record names no entry, as memos and the rows of parts to be linked do."""
    with suppress(ValueError, struct.error):
        return row.is_memo or not references_of(row)
    return False


def write(
    path: Path, folder: Folder, root: RootFolder, files: Collection[Member], *, memos: bool = True
) -> None:
    """Write a file atomically, below its lock; raises OSError, or a GpucacheError with the remedy."""
    keys = _keys(one for one in files if one.is_entry)
    digits = {key.hex().encode() for key in keys}
    if len(files) > MEMBERS_CAP:
        raise UsageError(f"{root.path} has more than {MEMBERS_CAP} files; choose some with --program")

    def belongs(row: Row) -> bool:
        return memos if _names_none(row) else _names_any(row.record, keys)

    def read() -> Iterator[tuple[Member, bytes]]:
        left = FILE_BYTES_CAP
        for member in files:
            try:
                with (
                    root.open() as top,
                    open_trusted(top, *member.place, member.name) as (fd, _),
                    open(fd, "rb", closefd=False) as file,
                ):
                    lines = file if member.name.endswith(layout.HISTORY_SUFFIX) else ()
                    events = (line for line in lines if not line.startswith(b'{"kind":'))
                    of_keys = b"".join(
                        line for line in events if not digits.isdisjoint(_HEX_KEY.findall(line))
                    )
                    data = of_keys or file.read()
                if member.name.endswith(_ROW) and rows_of(data):
                    rows = (row for row in rows_of(data) or () if belongs(row))
                    data = encode([*rows])
            except FileNotFoundError:  # another process evicted it
                continue
            left -= len(data) + 2 * _BLOCK
            if left < 0:
                raise UsageError(f"{root.path} has more than 4 GiB; choose some with --program")
            yield member, data

    mode, ours = 0o600, re.compile(rf"{re.escape(f'.{path.name}.gpucache-')}[0-9a-f]{{16}}")
    with suppress(FileNotFoundError):
        mode |= folder.lstat(path.name).st_mode & 0o044
    for one in [one.name for one in folder.entries() if ours.fullmatch(one.name)]:
        with suppress(OSError):
            folder.unlink(one)  # of a killed process, as one process at a time writes
    partial = f".{path.name}.gpucache-{os.urandom(8).hex()}"
    folder.publish(partial, folder, path.name, packed(read()), mode, durable=True)


@contextmanager
def _alone(path: Path, wait_s: float = _WAIT_S) -> Iterator[Folder]:
    """The directory of a file, while no other process writes the file; raises OSError, CacheUnusableError."""
    from gpucache.store import lock

    with (
        Folder.at(path.parent) as folder,
        lock.single_flight(folder, f".{path.name}.lock", wait_s) as holding,
    ):
        if not holding:
            if not os.access(path.parent, os.W_OK):
                raise CacheUnusableError("its directory cannot be written; name a file in another one")
            raise CacheUnusableError("another process writes it, or its file system has no locks")
        yield folder


def export(root: Path, path: Path, programs: Collection[str]) -> Written:
    """Write some programs of a root, all if none is named, into a file; raises OSError, UsageError.

    Or CacheUnusableError for the root. A file that is not such a file stays. Requests that were noted are
    left out, and which headers were read as well if programs are named: they may be of other programs.
    """
    path = Path(os.path.realpath(path))
    if os.path.lexists(path) and not is_root_file(path):
        raise UsageError(f"{path} is not a cache in a file, and stays; name another file")
    folder = RootFolder(root)
    files = chosen(
        folder,
        lambda heads: [one for one in heads if not programs or heads[one].program in programs],
        (_MISSED, _MEMO) if programs else (_MISSED,),
    )
    if not (entries := sum(one.is_entry for one in files)):
        of = f" of {format_list([*programs])}" if programs else ""
        raise UsageError(f"{root} has no entries{of}; 'gpucache inspect' lists those that it has")
    with _alone(path) as beside:
        write(path, beside, folder, files, memos=not programs)
    return Written(path, entries, path.stat().st_size, changed=True)


class RootFile:
    """A file, and the directory in which its root is until this process ends."""

    def __init__(self, path: Path, warn: Callable[[str], object], *, writes: bool = True) -> None:
        """Read a file, which need not exist; raises UsageError or CacheUnusableError with the remedy."""
        self._path = path
        self._writes = writes
        self._process = os.getpid()
        self._begun_ns = time.time_ns()
        self._identity: tuple[int, int, int] | None = None
        self._had: dict[str, tuple[int, int]] = {}
        self._problem = ""
        self.damage = ""
        """The sentence about a damaged file; empty if it was whole."""
        with self._open() as file:
            if unpacked := os.environ.pop(UNPACKED, ""):
                self._adopt(unpacked, file)
                return
            places = _private_places()
            if not places:
                raise CacheUnusableError(f"{path} cannot be unpacked: no directory is writable; set TMPDIR")
            for parent in places:
                try:
                    self._unpack(parent, file)
                    break
                except OSError as error:
                    if parent == places[-1]:
                        why = f"{os_errors.reason(error)}; {os_errors.remedy(error)}"
                        raise CacheUnusableError(f"{path} cannot be unpacked in {parent}: {why}") from None
        self._had = self._states()
        self._entries = sum("/".join(layout.ENTRIES) in one for one in self._had)
        if self.damage:
            warn(self.damage)

    def _adopt(self, unpacked: str, file: BinaryIO | None) -> None:
        """Go on with a directory into which ``native/run.c`` has unpacked the file.

        Differences to the file are changes since then, of the directory or of the file.
        """
        lock, _, place = unpacked.partition(":")
        root, self._scratch = Path(place) / "root", scratch.scratch.adopt(place, int(lock))
        self.root = RootFolder(root)
        if file is not None:  # and no other file's, as this one may have been replaced since
            self._identity = 0, os.fstat(file.fileno()).st_size, 0
        with suppress(OSError):
            self._begun_ns = (root.parent / scratch.MARK).stat().st_mtime_ns
        now = self._states()
        with suppress(FormatError):
            for member, data in members(file) if file is not None else ():
                with suppress(OSError):
                    if (root / member.path).read_bytes() == data and member.path in now:
                        day = min(member.used_ns, self._begun_ns - 2 * RECENCY_NS) // _DAY_NS
                        self._had[member.path] = now[member.path][0], day if member.is_entry else 0
        self._entries = sum("/".join(layout.ENTRIES) in one for one in now)

    @contextmanager
    def _open(self) -> Iterator[BinaryIO | None]:
        """The file, if it exists; raises UsageError or CacheUnusableError if it cannot be used."""
        path = self._path
        try:
            folder = Folder.at(path.parent)
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(
                f"{path.parent} does not exist, so {path.name} cannot be kept there; create the directory"
            ) from None
        except OSError as error:
            raise os_errors.unreadable(path, error, "name another file") from None
        with folder:
            try:
                opened = open_trusted(folder, path.name)
            except FileNotFoundError:
                yield None
                return
            except UntrustedFileError as error:
                raise CacheUnusableError(
                    f"{path} is not trusted, as {error.strerror}; name another file, or remove it"
                ) from None
            except OSError as error:
                raise os_errors.unreadable(path, error, "name another file") from None
            with opened as (fd, status), open(fd, "rb", closefd=False) as file:
                ours = not status.st_size or _is_ours(file)
                if status.st_size > FILE_BYTES_CAP or not ours:
                    raise UsageError(f"{path} is not a cache in a file, and stays; name another file")
                yield file if status.st_size else None

    def _unpack(self, parent: str, file: BinaryIO | None) -> None:
        own = scratch.scratch(self._path.name[:_NAME_CAP], parent)
        self.root = RootFolder(Path(own.make()) / "root")
        try:
            self._take(file)
        except BaseException:
            own.remove()
            raise
        self._scratch = own

    def _take(self, file: BinaryIO | None) -> None:
        """Take over what the file has and the directory lacks; raises OSError, CacheUnusableError."""
        self.root.make(*layout.TMP).close()
        self._identity = None if file is None else _identity(os.fstat(file.fileno()))
        try:
            for member, data in members(file) if file is not None else ():
                if not os.path.lexists(self.root.path / member.path):
                    # So old that each use from now on is recorded, and seen when the file is written.
                    used_ns = min(member.used_ns, time.time_ns() - 2 * RECENCY_NS)
                    with self.root.make(*member.place) as folder:
                        self.root.put(folder, member.name, data, used_ns=used_ns, durable=False)
        except FormatError as error:
            self.damage = (
                f"{self._path} {error}; the rest is lost, and the next program that misses writes it anew"
            )

    def _states(self) -> dict[str, tuple[int, int]]:
        """The inode of each file in the directory, which a replacement changes, and the day of its use."""
        found: dict[str, tuple[int, int]] = {}
        places: list[tuple[str, ...]] = [*_RECORDS]
        with suppress(*UNUSABLE), self.root.open(*layout.ENTRIES) as folder:
            places += [(*layout.ENTRIES, one.name) for one in folder.entries()]
        for place in places:
            with suppress(*UNUSABLE), self.root.open(*place) as folder:
                for one in folder.entries():
                    status, member = one.stat(follow_symlinks=False), Member(place, one.name, 0)
                    if _is_in_root(member, status.st_size) and one.name != layout.LOG_NAME:
                        day = status.st_mtime_ns // _DAY_NS if member.is_entry else 0
                        found[member.path] = one.inode(), day
        return found

    def write(self, wait_s: float = _WAIT_S) -> Written:
        """Write the file if its root has changed or the file is gone, after any other process that writes it.

        Raises nothing.
        """
        done = Written(self._path)
        if os.getpid() != self._process:
            return done
        try:
            now = self._states()
            same = now.keys() == self._had.keys() and not any(
                _differs(self._had[one], now[one]) for one in now
            )
            same = same and (self._identity is None or self._path.exists())
            if self._writes and not same:
                with _alone(self._path, 0 if self._problem else wait_s) as folder:
                    with self._open() as file:
                        if file is not None and self._identity != _identity(os.fstat(file.fileno())):
                            self._take(file)
                    kept = chosen(self.root, self._current)
                    write(self._path, folder, self.root, kept)
                    self._identity = _identity(folder.lstat(self._path.name))
                self._had, self._entries, self.damage = self._states(), sum(one.is_entry for one in kept), ""
                done = done._replace(changed=True)
        except OSError as error:
            why = f"{os_errors.reason(error)}; {os_errors.remedy(error)}, or name another file"
            return done._replace(problem=self._untold(why))
        except GpucacheError as error:
            return done._replace(problem=self._untold(str(error)))
        size_bytes = 0 if self._identity is None else self._identity[1]
        return done._replace(entries=self._entries, size_bytes=size_bytes)

    def _untold(self, why: str) -> str:
        before, self._problem = self._problem, f"{self._path} was not written: {why}"
        return self._problem if self._problem != before else ""

    def _current(self, heads: Mapping[Member, EntryHead]) -> list[Member]:
        """Entries that this process used or made, and those to which there is no newer one.

        An older entry is kept for 30 days after its last use if the newer one is of another toolchain, as two
        environments may share a file, or if its source is not a file, as another program may have its name.
        """
        newest: dict[object, int] = {}
        for head in heads.values():
            for build in (_build(head), _build(head)[:-1]):
                newest[build] = max(head.created_ns, newest.get(build, 0))

        def stays(used_ns: int, head: EntryHead) -> bool:
            if max(used_ns, head.created_ns) >= self._begun_ns:
                return True
            build, made = _build(head), head.created_ns
            young = used_ns > self._begun_ns - _UNUSED_NS
            proven = head.place and newest[build] > made
            return newest[build[:-1]] == made or (young and not proven)

        return [one for one, head in heads.items() if stays(one.used_ns, head)]

    def close(self) -> None:
        """Remove the directory. Raises nothing."""
        if os.getpid() == self._process:
            self._scratch.remove()


def _differs(had: tuple[int, int], now: tuple[int, int]) -> bool:
    return had[0] != now[0] or had[1] < now[1]


def _build(head: EntryHead) -> tuple[object, ...]:
    names = tuple(sorted(head.lowered_names))
    asked = head.program, head.place, head.target, head.artifact_kind, head.options, head.checks, names
    return (*asked, head.toolchain)


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _private_places() -> list[str]:
    """The places for a private directory, places in memory first."""
    found, runtime = [], os.environ.get("XDG_RUNTIME_DIR", "")
    with suppress(OSError):
        status = Path(runtime).stat()
        if distrust(status) is None and not status.st_mode & 0o077:
            found += [runtime] * os.access(runtime, os.W_OK | os.X_OK)
    found += ["/dev/shm"] * os.access("/dev/shm", os.W_OK | os.X_OK)
    with suppress(OSError):
        found.append(scratch.temporary())
    return found


_open: dict[Path, RootFile] = {}


def root_of(path: Path, warn: Callable[[str], object], *, writes: bool) -> Path:
    """The directory of a file's root, until this process ends; raises UsageError or CacheUnusableError."""
    if path not in _open:
        opened = RootFile(path, warn, writes=writes)
        if _open.setdefault(path, opened) is not opened:  # another thread was faster
            opened.close()
        else:
            scratch.ENDINGS.add(_end_quietly)
            atexit.register(_end, warn)
            if util := sys.modules.get("multiprocessing.util"):  # whose children end without atexit
                util.Finalize(None, _end, (warn,), exitpriority=0)
    return _open[path].root.path


def path_of(root: Path) -> Path:
    """The file whose root is in a directory; else that directory."""
    return next((path for path, one in _open.items() if one.root.path == root), root)


def damages() -> list[str]:
    """A sentence for each file that was damaged when it was read."""
    return [one.damage for one in _open.values() if one.damage]


def write_all() -> list[Written]:
    """Write every file whose root has changed. Raises nothing."""
    return [one.write() for one in _open.values()]


def _end(warn: Callable[[str], object]) -> None:
    for one in write_all():
        if one.problem:
            warn(one.problem)
    _close()


def _end_quietly() -> None:
    write_all()
    _close()


def _close() -> None:
    while _open:
        _open.popitem()[1].close()
