"""Futhark's cache files: one per program, at the place that ``--cache-file`` names when it is started.

A location that is a file is that one entry; a directory has every cache file directly in it, recognised by
its first bytes, among people's other files. The file, its key and the reasons of a miss are
``file``'s. Must not know compilers or devices.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePath

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Location, Problem
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach
from gpucache.caches import files
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.format import Clock
from gpucache.caches.futhark import file
from gpucache.caches.futhark.file import COMPARED_BYTES
from gpucache.caches.futhark.locations import FutharkPlaces, folder_of
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Layout, Left, Whose, is_copy
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.folders import Folder
from gpucache.model import KeyField
from gpucache.payload import PayloadInfo, PayloadKind, describe
from gpucache.units import format_size

LARGEST_BYTES = 256 << 20
"""Larger files have only their header checked."""
SCANNED_BYTES = 4 << 20
"""The part of a file that a scan reads: enough to recognise nearly every payload."""
_NAMES_LOOKED_AT = 2000
_NAME = "name a Futhark cache file or its directory"
_UNREAD = "it is a link, not a file, or unreadable, so it is left alone; keep it elsewhere"
_SHORT = "it is too short to show whether it is Futhark's, so it is left alone; keep it elsewhere"
_FOREIGN = "it does not begin like Futhark's files, so it is left alone; keep it elsewhere"
_BAD_PAYLOAD = frozenset({FindingKind.CORRUPT, FindingKind.MISLABELLED})


class Futhark(FutharkPlaces, FilesFormat):
    """The files that programs made by ``futhark cuda``, ``hip`` and ``opencl`` leave at a given place."""

    layout = Layout((), left=[Left(file.PARTIAL)])
    wanted = file.FIELDS
    fixes = frozenset({FindingKind.TRUNCATED, *_BAD_PAYLOAD})

    def __init__(self, location: Location, clock: Clock) -> None:
        super().__init__(location, clock)
        self._named = "" if self.root == folder_of(self.root) else self.root.name
        self.root = folder_of(self.root)

    @classmethod
    def require(cls, root: Path) -> None:
        """A file or a directory; a link is a finding, and an inaccessible path a problem of the place."""
        try:
            mode = root.lstat().st_mode
        except (FileNotFoundError, PermissionError):
            return
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise CacheUnusableError(f"{str(root)!r} cannot be accessed ({why}); {_NAME}") from error
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            raise CacheUnusableError(f"{root} is not a file or a directory; {_NAME}")

    @classmethod
    def whose(cls, path: Path) -> Whose:
        """Futhark's if it is a cache file, or a directory that directly has one. As people name the place,
        and only files that begin like Futhark's are used, no other place is foreign."""
        with files.open_folder(path if path.is_dir() else path.parent) as folder:
            found = _cache_files(folder, _NAMES_LOOKED_AT) if path.is_dir() else ()
            own = any(found) or (not path.is_dir() and is_cache_file(folder, path.name))
        return Whose.OWN if own else Whose.UNKNOWN

    def items(self, prefix: str) -> Iterator[Files]:
        with files.open_folder(self.root) as folder:
            for name in [self._named] if self._named else _cache_files(folder):
                with suppress(FileNotFoundError):
                    status = folder.lstat(name)
                    head = file.read_header(_start(folder, name))
                    key = head.key.hex() if head is not None else name
                    if key.startswith(prefix):
                        yield Files(self.root, (), key, {name: status})

    def beside(self) -> Iterator[Checked]:
        yield from (one for one in super().beside() if file.is_partial(Path(one.entry).name))

    def stays(self, item: Files) -> str:
        """A file that was named is an entry, whichever program made it; only Futhark's own is removed."""
        (name,), (status,) = item.seen, item.seen.values()
        try:
            start = item.part(name, 0, len(file.MAGIC))
        except (OSError, FormatError):
            return _UNREAD
        if file.is_futhark(start):
            return ""
        return _SHORT if status.st_size < len(file.MAGIC) else _FOREIGN

    def look(self, item: Files) -> CacheEntry:
        (name,), (status,) = item.seen, item.seen.values()
        start = item.part(name, 0, file.HEADER_BYTES + SCANNED_BYTES)
        head = file.read_header(start)
        told = describe(start[file.HEADER_BYTES :])
        return self.entry(item)._replace(
            program=file.program_of(name),
            target=file.target_of(told) if head is not None else "",
            artifact_kind=told.kind.value if head is not None else "",
            fields=(("key", item.key),) if head is not None else (),
            damage=file.damage(start, status.st_size),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        (name,) = item.seen
        data = item.part(name, 0, LARGEST_BYTES + 1)
        with item.open() as folder:
            size = folder.lstat(name).st_size
        damage = file.damage(data, size)
        if damage is None and size <= LARGEST_BYTES:
            damage = payload_problem(describe(data[file.HEADER_BYTES :]))
        if damage is not None:
            yield damage
        source = file.source_of(name)
        if source is not None and not os.path.lexists(item.folder / source):
            yield Problem(
                FindingKind.ORPHAN,
                f"{source}, next to which 'futhark bench' or 'futhark test' leaves it, is gone; "
                f"'gpucache evict --program {source}' removes it",
            )

    def unsound(self, item: Files) -> Problem | None:
        """Unknown payloads may still be sound, so they are given out."""
        found = super().unsound(item)
        return None if found is not None and found.kind is FindingKind.MISLABELLED else found

    def notes(self, item: Files) -> Iterator[str]:
        if next(iter(item.seen.values())).st_size > LARGEST_BYTES:
            yield f"it is larger than {format_size(LARGEST_BYTES)}: its content was not checked"

    def payload(self, item: Files) -> bytes:
        return item.read(item.names[0], LARGEST_BYTES)[file.HEADER_BYTES :]

    def report(self, item: Files, entry: CacheEntry) -> EntryReport:
        data = item.read(item.names[0], LARGEST_BYTES)
        head = file.read_header(data)
        if head is None:
            raise FormatError(f"{entry.path} cannot be read: {entry.damage}; run 'gpucache verify'")
        fields = (
            KeyField("magic", file.MAGIC.decode().replace("\0", "\\0")),
            KeyField("declared size in bytes", str(head.declared_bytes)),
            KeyField("real size in bytes", str(len(data))),
            KeyField("key", head.key.hex()),
            KeyField("all of the key that Futhark compares", head.key[:COMPARED_BYTES].hex()),
        )
        return EntryReport(entry, fields, describe(data[file.HEADER_BYTES :]).pairs)

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        question = file.read_question(wanted)
        try:
            candidates = [self._candidate(item) for item in self.items("")]
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            candidates = []
        return file.explain(question, candidates)

    def _candidate(self, item: Files) -> file.Candidate:
        (name,) = item.seen
        try:
            damage, look = self.bars(item), self.entry(item) if self.bars(item) else self.look(item)
        except OSError as error:
            damage, look = self.unreadable(error), self.entry(item)
        except FormatError as error:
            damage, look = Problem(FindingKind.UNTRUSTED, str(error)), self.entry(item)
        wrong = damage or look.damage

        def bad_payload() -> str:
            return next((one.detail for one in self.check(item) if one.kind in _BAD_PAYLOAD), "")

        return file.Candidate(
            name=name,
            key=bytes.fromhex(item.key) if look.fields else b"",
            entry=item.key,
            backend=look.target.partition(":")[0],
            damage=wrong.detail if wrong else "",
            readable=damage is None,
            payload_problem=bad_payload,
        )

    def is_left(self, start: bytes) -> bool:
        return file.is_futhark(start) or file.MAGIC.startswith(start)


def is_cache_file(folder: Folder, name: str) -> bool:
    """Whether a name is a regular file that begins with the magic. Raises nothing."""
    try:
        return file.is_futhark(_start(folder, name))
    except OSError:
        return False


def payload_problem(payload: PayloadInfo) -> Problem | None:
    """The problem of a payload, and its effect on the program that is given it."""
    becomes = file.consequence(payload)
    if payload.problem:
        detail = f"its {payload.kind} payload is broken: {payload.problem}; {becomes}"
        return Problem(FindingKind.CORRUPT, detail)
    if payload.kind is PayloadKind.UNKNOWN:
        detail = f"its payload has no format that gpucache knows; {becomes}"
        return Problem(FindingKind.MISLABELLED, detail)
    return None


def _start(folder: Folder, name: str) -> bytes:
    """The header of a regular file; nothing if it is not one or not readable."""
    try:
        return files.read_part(folder, name, 0, file.HEADER_BYTES)
    except (FormatError, PermissionError):
        return b""


def _cache_files(folder: Folder, most: int | None = None) -> Iterator[str]:
    """The names of the cache files directly in a directory, in no order; raises OSError.

    An empty one is recognised by its name: ``foo.fut.cache``, or the ending of another one there.
    """
    endings, empty = {file.ENDING}, []
    for found in islice(folder.entries(), most):
        if file.is_partial(found.name) or is_copy(found.name) or not found.is_file(follow_symlinks=False):
            continue
        if is_cache_file(folder, found.name):
            endings.add(PurePath(found.name).suffix)
            yield found.name
        elif file.source_of(found.name):
            with suppress(FileNotFoundError):
                empty += [found.name] if not folder.lstat(found.name).st_size else []
    yield from (name for name in empty if PurePath(name).suffix in endings)
