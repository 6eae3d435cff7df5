"""Futhark's cache files: one per program, at the place that ``--cache-file`` names when it is started.

A location that is a file is that one entry; a directory has every cache file directly in it, recognised by
its first bytes, among people's other files. The file, its key and the reasons of a miss are
``file``'s. Must not know compilers or devices.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePath

from gpucache.answers.entries import CacheEntry, FindingKind, Location, Problem
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach, Served
from gpucache.caches import files
from gpucache.caches.files import Files, Frame, Rule, Span
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.format import Clock
from gpucache.caches.futhark import file
from gpucache.caches.futhark.file import COMPARED_BYTES, FutharkBuild, LogReading
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Layout, Left, Whose, is_copy
from gpucache.caches.systems import FutharkPlaces, folder_of_file
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.folders import Folder
from gpucache.keys import Difference
from gpucache.payload import PayloadKind, describe
from gpucache.units import format_size, printable

LARGEST_BYTES = 256 << 20
"""Larger files have only their header checked."""
SCANNED_BYTES = 4 << 20
"""The part of a file that a scan reads: enough to recognise nearly every payload."""
_NAMES_LOOKED_AT = 2000
_NAME = "name a Futhark cache file or its directory"
_FOREIGN = "it does not begin like Futhark's files or cannot be read, so it is left alone; keep it elsewhere"
RECOMPILED = "the program logs 'Failed to restore cache (errno: Success)', compiles again and writes over it"
_AGAIN = (
    "a CUDA or HIP program compiles again; an OpenCL program whose platform refuses it stops with "
    "'Compilation of OpenCL program failed' and does not compile again; remove the file"
)
_INPUTS = "it was made from another source or other options, of which the file stores none"
_BAD_PAYLOAD = frozenset({FindingKind.CORRUPT, FindingKind.MISLABELLED})
_FILE = Frame(
    ".+", ":8 size:u64 :32 payload:rest", RECOMPILED,
    (
        Rule(FindingKind.CORRUPT, lambda one: one.part(Span(0, 8)) != file.MAGIC,
             "does not begin like a Futhark cache file", "a program that is given it writes over it"),
        Rule(FindingKind.TRUNCATED, lambda one: one.size_bytes < one.numbers["size"] < 1 << 63,
             "has fewer bytes than it says"),
        Rule(FindingKind.CORRUPT, lambda one: one.size_bytes != one.numbers["size"],
             "has more bytes than it says, so two writers may have met"),
    ),
)  # fmt: skip


class Futhark(FutharkPlaces, FilesFormat):
    """The files that programs made by ``futhark cuda``, ``hip`` and ``opencl`` leave at a given place."""

    layout = Layout((), left=[Left(file.PARTIAL)])
    wanted = file.FIELDS
    frames = (_FILE,)
    fixes = frozenset({FindingKind.TRUNCATED, *_BAD_PAYLOAD})

    def __init__(self, location: Location, clock: Clock) -> None:
        super().__init__(location, clock)
        self._named = "" if self.root == folder_of_file(self.root) else self.root.name
        self.root = folder_of_file(self.root)

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
                    start = _start(folder, name)
                    own = start.startswith(file.MAGIC) and len(start) == file.HEADER_BYTES
                    key = start[-file.KEY_BYTES :].hex() if own else name
                    if key.startswith(prefix):
                        yield Files(self.root, (), key, {name: status})

    def beside(self) -> Iterator[Checked]:
        yield from (one for one in super().beside() if re.fullmatch(file.PARTIAL, Path(one.entry).name))

    def stays(self, item: Files) -> str:
        """A file that was named is an entry, whichever program made it; only Futhark's own is removed."""
        with suppress(OSError, FormatError):
            return "" if item.part(item.names[0], 0, len(file.MAGIC)) == file.MAGIC else _FOREIGN
        return _FOREIGN

    def look(self, item: Files) -> CacheEntry:
        name = item.names[0]
        start, damage = item.part(name, 0, SCANNED_BYTES), next(self.judged(item, name), None)
        own = start.startswith(file.MAGIC) and len(start) >= file.HEADER_BYTES
        told = describe(start[file.HEADER_BYTES :])
        return self.entry(item)._replace(
            program=file.program_of(name),
            target=file.target_of(told) if own else "",
            artifact_kind=told.kind.value if own else "",
            fields=(("key", item.key),) if own else (),
            damage=damage,
        )

    def check(self, item: Files) -> Iterator[Problem]:
        now, name = item.again(), item.names[0]
        wrong = next(self.judged(now, name), None) or next(self._payload_problem(now), None)
        if wrong is not None:
            yield wrong
        source = file.source_of(name)
        if source is not None and not os.path.lexists(item.folder / source):
            yield Problem(
                FindingKind.ORPHAN,
                f"{source}, next to which 'futhark bench' or 'futhark test' leaves it, is gone; "
                f"'gpucache evict --program {source}' removes it",
            )

    def _payload_problem(self, item: Files) -> Iterator[Problem]:
        if item.seen[item.names[0]].st_size > LARGEST_BYTES:
            return
        info = describe(self.payload(item))
        if info.problem:
            yield Problem(FindingKind.CORRUPT, f"its {info.kind} payload is broken: {info.problem}; {_AGAIN}")
        elif info.kind is PayloadKind.UNKNOWN:
            detail = f"its payload has no format that gpucache knows; {_AGAIN}"
            yield Problem(FindingKind.MISLABELLED, detail)

    def unsound(self, item: Files) -> Problem | None:
        """Unknown payloads may still be sound, so they are given out."""
        found = super().unsound(item)
        return None if found is not None and found.kind is FindingKind.MISLABELLED else found

    def notes(self, item: Files) -> Iterator[str]:
        if item.seen[item.names[0]].st_size > LARGEST_BYTES:
            yield f"it is larger than {format_size(LARGEST_BYTES)}: its content was not checked"

    def payload(self, item: Files) -> bytes:
        return item.read(item.names[0], LARGEST_BYTES)[file.HEADER_BYTES :]

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        if not entry.fields:
            raise FormatError(f"{entry.path} cannot be read: {entry.damage}; run 'gpucache verify'")
        yield "all of the key that Futhark compares", item.key[: 2 * COMPARED_BYTES]

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        """One answer for each file; of several files for the one that the log names, if it names one."""
        question = file.read_question(wanted)
        log, items = question.log or LogReading(), list[Files]()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            items = list(self.items(""))
        asked = PurePath(log.asked_for.decode("utf-8", "surrogateescape")).name
        named = [one for one in items if one.names[0] == asked]
        for item in named or items:
            verdict, detail, changed, words = self._answered(question, item, "" if named else asked)
            yield Reach(self.name, f"{item.names[0]}: {words}", verdict, detail, changed, item.key)
        if not items:
            remedy = "start the program with --cache-file, in a directory that exists, to make it"
            if log.store_error:
                remedy = (
                    f"the log says that it could not be written ({printable(log.store_error)}); "
                    "name another file"
                )
            detail = f"no cache file exists; {remedy}"
            yield Reach(self.name, question.words, Verdict.NEVER_BUILT, detail)

    def _answered(
        self, question: FutharkBuild, item: Files, elsewhere: str
    ) -> tuple[Served | Verdict, str, tuple[Difference, ...], str]:
        """Verdict, detail, what differs, and the question in words; ``elsewhere`` is the file that the log
        names instead."""
        try:
            look = None if (wrong := self.bars(item)) else self.look(item)
        except (OSError, FormatError) as error:
            look, wrong = None, Problem(FindingKind.UNTRUSTED, str(error))
        if not question.backend:
            question = question.of((look.target.partition(":")[0] if look else "") or "cuda")
        if look is None and wrong:
            return Verdict.OPAQUE_KEY, f"{wrong.detail}, so its key is not known", (), question.words
        expected, found = file.to_bytes(question.total).hex(), item.key
        damage = look.damage if look else None
        changed = () if damage or found == expected else (Difference("key", found, expected),)
        if damage:
            told: tuple[Served | Verdict, str] = Verdict.CORRUPT, damage.detail
        elif found[: 2 * COMPARED_BYTES] != expected[: 2 * COMPARED_BYTES]:
            told = Verdict.KEY_CHANGED, f"{_INPUTS}; {RECOMPILED}"
        elif changed:
            detail = (
                f"Futhark compares only the first eight bytes of the key, so it takes this file: {_INPUTS}"
            )
            told = Served.FALSE_HIT, f"{detail}; remove it"
        elif problem := next(self._payload_problem(item), None):
            told = Verdict.CORRUPT, f"the key matches, but {problem.detail}"
        elif question.log is not None and question.log.stopped:
            detail = "the platform refuses to build the restored binary, and Futhark does not compile again"
            told = Verdict.REJECTED, f"{detail}; remove the file"
        elif elsewhere:
            detail = f"the key matches, but the program asked for {elsewhere}; start it with --cache-file"
            told = Verdict.NOT_CONSULTED, f"{detail} {item.names[0]}"
        else:
            told = Served.HIT, "all 32 bytes of its key match, so Futhark restores it"
        return (*told, changed, question.words)

    def is_left(self, start: bytes) -> bool:
        return start.startswith(file.MAGIC) or file.MAGIC.startswith(start)


def is_cache_file(folder: Folder, name: str) -> bool:
    """Whether a name is a regular file that begins with the magic. Raises nothing."""
    try:
        return _start(folder, name).startswith(file.MAGIC)
    except OSError:
        return False


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
        if (
            re.fullmatch(file.PARTIAL, found.name)
            or is_copy(found.name)
            or not found.is_file(follow_symlinks=False)
        ):
            continue
        if is_cache_file(folder, found.name):
            endings.add(PurePath(found.name).suffix)
            yield found.name
        elif file.source_of(found.name):
            with suppress(FileNotFoundError):
                empty += [found.name] if not folder.lstat(found.name).st_size else []
    yield from (name for name in empty if PurePath(name).suffix in endings)
