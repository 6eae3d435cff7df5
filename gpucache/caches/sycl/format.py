"""libsycl's persistent cache: a directory named by hashes has the copies of a program's binary, by number.

Source: libsycl, ``persistent_device_code_cache.cpp`` (``getCacheItemPath``, ``getCompiledKernelItemPath``,
``getDeviceCodeIRPath``, ``getItemFromDisc``, ``LockCacheItem``, ``updateCacheFileSizeAndTriggerEviction``)::

    <device>/<images>/<spec constants>/<build options>/<n>.bin .src _access_time.txt
    ext_kernel_compiler/<device>/<build options>/<source>/<n>.bin _access_time.txt
    ext_kernel_compiler/<Base64 of a 256-bit hash, / as ->/ir.bin ir_access_time.txt

An entry is such a directory, as its hashes cover the whole key. Programs look at 0, 1, 2... while either
file of a number exists; a number with a lock is passed over; the first whose ``.src`` equals the wanted key
is taken, even with a damaged ``.bin``. So everything wrong in a directory is repaired by removing the whole,
which programs write again. A lock is a file made with O_CREAT | O_EXCL and names no process: after ten
minutes it counts as abandoned.
"""

import hashlib
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import filterfalse
from pathlib import Path

from gpucache import payload as payloads
from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Location, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach, Served
from gpucache.caches import files
from gpucache.caches.files import Files, Identity
from gpucache.caches.files_format import FilesFormat, needed
from gpucache.caches.format import HeldError
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Layout, Whose
from gpucache.caches.portable import Fact, Moving, PortableEntry, PortableFile
from gpucache.caches.sycl import entry as files_of
from gpucache.caches.sycl import questions
from gpucache.caches.sycl.entry import (
    ACCESS,
    ACCESS_LOCK,
    BINARY,
    DEVICE_LABELS,
    FILE,
    IDENTITY_LABELS,
    IR_STEM,
    KERNELS,
    LOCK,
    NAMED_BYTES,
    SHOWN_BYTES,
    SOURCE,
    Binary,
    DamagedError,
    Number,
    Numbers,
    Source,
    access_number,
    family_of,
    half_of,
    judge,
    order,
)
from gpucache.caches.sycl.locations import FOLDER, LITTLE_BYTES, MAX_SIZE, Bounds, SyclPlaces
from gpucache.caches.why import nearest
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.keys import digest
from gpucache.model import KeyField
from gpucache.units import format_age, format_size

SIZE_FILE, EVICTION = "cache_size.txt", "_eviction_in_progress"
SIZE_LOCK = SIZE_FILE + LOCK
STALE_NS = 600 * 10**9
"""The age at which a lock counts as abandoned; libsycl takes one while it writes two files."""
_HASH = r"(0|[1-9][0-9]{0,18}|1[0-8][0-9]{18})"
# One hash in 20,000 has fewer than 15 digits, and other programs' numbers have: one may be short, not two.
_ONE_SHORT = r"(?!(?:.*?\b[0-9]{1,14}\b){2})"
_ENTRIES = (
    f"{_ONE_SHORT}{_HASH}/{_HASH}/{_HASH}/{_HASH}/",
    f"{_ONE_SHORT}({KERNELS})/{_HASH}/{_HASH}/{_HASH}/",
    f"({KERNELS})/([A-Za-z0-9+\\-]{{43}}=)/",
)
_ROOT_FILES = tuple(re.escape(name) for name in (SIZE_FILE, SIZE_LOCK, EVICTION, EVICTION + LOCK))
_CACHE = Layout(
    (*(entry + FILE for entry in _ENTRIES), KERNELS, SIZE_FILE),
    own=_ROOT_FILES,
    signs=(*_ROOT_FILES, KERNELS, f"[0-9]{{15,20}}/{_HASH}", f"{_HASH}/[0-9]{{15,20}}"),
)
"""Names that identify a directory as libsycl's: an entry's file, and shorter names unlikely elsewhere."""
_FAMILIES = {
    ("program", 4): ("device", "image", "spec constants", "build options"),
    ("kernel_compiler binary", 4): ("", "device", "build options", "source"),
    ("kernel_compiler IR", 2): ("", "source, options and compiler"),
}
"""By kind and depth of a directory, the part of the key that its name is a hash of."""
_SLACK_BYTES, _SIZE_BYTES = 64 << 10, 4096
_NUMBER = re.compile(rb"[ \t\n\v\f\r]*([+-]?)([0-9]{1,20})(?![0-9])")
"""Numbers with more digits than an unsigned 64-bit number are not read."""
_SIZE_LIKE = re.compile(rb"[\s\0+-]*+[0-9]*+[\s\0]*+")
"""The names that libsycl writes or a crash leaves; anything else belongs to another program."""
_NO_SIZE = "was not written by libsycl, so it stays; move it elsewhere"
_WRITERS_DIE = "a program with SYCL_CACHE_MAX_SIZE set dies of an uncaught exception when it adds an entry"
_SPINS = "a program with SYCL_CACHE_MAX_SIZE set spins for ever when it adds an entry"
_LOCKED = "programs pass this entry over and keep another copy next to it, and eviction spins on it for ever"
_TIMES = "programs no longer note when the entry was used, and eviction takes it too early"
_VARIANT_SHOWN, _NAMES_SHOWN = 200, 16


class Sycl(SyclPlaces, FilesFormat):
    """A directory of libsycl's device binaries."""

    layout = Layout(
        _ENTRIES,
        own=_ROOT_FILES,
        key=lambda names: hashlib.sha256("/".join(names).encode()).hexdigest(),
    )
    barred_by_links = False
    wanted = questions.WANTED
    asks_itself = True
    moving = Moving(tried=True, tells="names of kernels, build options, and images of programs")
    fixes = frozenset(FindingKind)
    _told: tuple[str, tuple[str, ...]] = "", ()
    """The entry that was checked last, and the facts missing from its files."""

    @classmethod
    def whose(cls, path: Path) -> Whose:
        """libsycl's if it has entries under hashes, or is an empty one with the cache's name."""
        whose = _CACHE.whose(path)
        empty = path.name == FOLDER and not any(path.iterdir())
        return Whose.OWN if empty else whose

    # Entries.

    def look(self, item: Files) -> CacheEntry | None:
        """The entry that programs see, from its files' first bytes; None for a directory without entries."""
        numbers = Numbers.of(item)
        if not numbers.stems:
            return None
        strange = ""
        found: list[CacheEntry] = []
        for stem in numbers.stems:
            strange = files_of.stranger(item, numbers, stem)
            if not strange:
                found.append(self._glance(item, numbers, stem))
                if found[-1].damage is None:
                    break
        if not found:
            return self.entry(item)._replace(stays=_not_ours(strange), unique=False, shows=False)
        look = found[-1] if found[-1].damage is None else found[0]
        return look._replace(last_used_ns=max(_used_ns(item, numbers, stem) for stem in numbers.stems))

    def check(self, item: Files) -> Iterator[Problem]:
        """Check both files of each number, the hashes, the binary's kind, and why programs miss it."""
        now = item.again()
        numbers = Numbers.of(now)
        _, found, notes = self._judged(now, numbers)
        self._told = item.key, tuple(notes)
        yield from (*found, *(problem for _, problem in self._around(now, numbers)))

    def notes(self, item: Files) -> Iterator[str]:
        """The properties that its files could not show."""
        yield from self._told[1] if self._told[0] == item.key else ()

    def trust(self, item: Files) -> Iterator[Problem]:
        """Files that others own or can write to, which people have to change."""
        seen = {name: one for name, one in item.seen.items() if not stat.S_ISLNK(one.st_mode)}
        return (one._replace(paths=()) for one in super().trust(replace(item, seen=seen)))

    def unsound(self, item: Files) -> Problem | None:
        """The problems of the number that programs take."""
        numbers = Numbers.of(item)
        judged = [judge(item, numbers, stem) for stem in numbers.stems]
        taken = next((one for one in judged if one.taken or one.kills), judged[0])
        return next((one for one in taken.problems if one.kind and one.kind.wrong), None)

    def payload(self, item: Files) -> bytes:
        """The binary that programs take."""
        numbers = Numbers.of(item)
        judged = (judge(item, numbers, stem) for stem in numbers.stems)
        stem = next((one.stem for one in judged if one.taken), numbers.stems[0])
        return Binary(item, stem).content()

    def report(self, item: Files, entry: CacheEntry) -> EntryReport:
        """The stored key, and a description of the binary."""
        numbers = Numbers.of(item)
        stem = next((one for one in numbers.stems if self._glance(item, numbers, one).damage is None), "")
        stem = stem or numbers.stems[0]
        binary = Binary(item, stem)
        payload: list[tuple[str, str]] = []
        if unseen := binary.payload.unseen:
            payload.append(("binary", f"{format_size(binary.payload.length)}, {unseen}"))
        else:
            data = binary.part(binary.payload)
            payload += [*payloads.describe(data).pairs, ("SHA-256", digest(data))]
            if binary.held > 1:
                payload.insert(-1, ("further binaries", str(binary.held - 1)))
        labels = _FAMILIES[family_of(item), len(item.parts)]
        place = (
            (f"directory of {label}", part) for label, part in zip(labels, item.parts, strict=True) if label
        )
        fields = (KeyField(*pair) for pair in (*_stored(item, stem), *place))
        numbered = KeyField("numbers", ", ".join(numbers.stems))
        return EntryReport(entry, (*fields, numbered), tuple(payload))

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        """One result for the fields given; raises UsageError."""
        question = questions.ask(wanted)
        bounds = Bounds.of(os.environ)
        refusal = "" if question.image_bytes is None else bounds.refusal(question.image_bytes)
        if closed := self.closed():
            yield Reach(self.name, question.words, Verdict.NOT_CONSULTED, closed)
            return
        programs = (item for item in self._present() if family_of(item) == "program")
        near = nearest(
            programs,
            question.asked,
            lambda item: question.stored(Source(item, Numbers.of(item).stems[0])),
            questions.WEIGHTS,
            self._hinders,
        )
        verdict: Served | Verdict
        if near is None:
            verdict, detail = (
                Verdict.NEVER_BUILT,
                "the cache has no entry; run the program to make one",
            )
        elif near.differing:
            lacking = ", ".join(near.differing)
            verdict, detail = (
                Verdict.KEY_CHANGED,
                f"no entry has all of it; the nearest, {near.item.key[:12]}, differs in {lacking}",
            )
        elif near.wrong and near.wrong.kind is FindingKind.LOCKED:
            why = f"{near.wrong.detail}; {near.wrong.remedy}"
            verdict, detail = Verdict.NOT_CONSULTED, f"it is being written, or its writer died: {why}"
        elif near.wrong:
            verdict, detail = (
                Verdict.CORRUPT,
                f"it is present, but {near.wrong.detail}; {fix(self.location)}",
            )
        else:
            told = f"; {', '.join(question.unasked)} were not asked for" if question.unasked else ""
            verdict, detail = Served.HIT, f"{near.item.key[:12]} has all of it and programs get to it{told}"
        if refusal:
            verdict, detail = Verdict.UNCACHEABLE, refusal
        if not self.location.enabled:
            off = next((one for one in self.location.problems if one.startswith("SYCL_CACHE_")), _OFF)
            verdict, detail = Verdict.NOT_CONSULTED, f"{off} (otherwise: {detail})"
        differences = near.differences(question.asked) if near else ()
        yield Reach(self.name, question.words, verdict, detail, differences, near.item.key if near else "")

    def _present(self) -> Iterator[Files]:
        with suppress(OSError):
            yield from (item for item in self.items("") if Numbers.of(item).stems)

    def _hinders(self, item: Files) -> Problem | None:
        """The reason why programs cannot use an entry."""
        served, found, _ = self._judged(item, Numbers.of(item))
        return next(iter(found), None) if not served else None

    def _glance(self, item: Files, numbers: Numbers, stem: str) -> CacheEntry:
        """The state of one number from the first bytes of its files."""
        wrong: list[Problem] = []
        family = family_of(item)
        program = "" if family == "program" else f"{family} {item.key[:12]}"
        look = self.entry(item)._replace(program=program, unique=family != "program")
        with _noting(wrong):
            if family == "program" and SOURCE in numbers.suffixes[stem]:
                look = _described(look, item, Source(item, stem))
        with _noting(wrong):
            if BINARY in numbers.suffixes[stem]:
                binary = Binary(item, stem)
                start = binary.part(binary.payload, SHOWN_BYTES)
                look = look._replace(artifact_kind=payloads.describe(start).kind.value)
        locked = self._under_lock(item, stem)
        half, beyond = half_of(item, numbers, stem), _beyond(numbers, stem)
        if locked is not None and locked.kind is FindingKind.LOCKED:
            problem: Problem | None = locked  # a program may be writing it, so its content is not judged
        elif half:
            problem = Problem(FindingKind.ORPHAN, half)
        elif wrong or locked:
            problem = wrong[0] if wrong else locked
        else:
            problem = Problem(FindingKind.MISPLACED, beyond) if beyond else None
        return look._replace(damage=problem)

    def _judged(self, item: Files, numbers: Numbers) -> tuple[str, list[Problem], list[str]]:
        """The number that serves programs, empty for none; the problems of all numbers; and notes."""
        served, killer = "", ""
        taken: dict[str, Number] = {}
        found: list[Problem] = []
        notes: list[str] = []
        # A stranger is told with everything around the entries.
        for stem in filterfalse(partial(files_of.stranger, item, numbers), numbers.stems):
            locked = self._under_lock(item, stem)
            if locked is not None:
                found.append(locked)
                if locked.kind is FindingKind.LOCKED:
                    continue  # an entry in the making is not judged
            one = judge(item, numbers, stem)
            found += one.problems
            notes += one.notes
            if locked is None:
                twin = taken.get(one.digest) if one.digest else None
                if beyond := _beyond(numbers, stem):
                    found.append(Problem(FindingKind.MISPLACED, beyond))
                elif killer:
                    detail = f"programs die of {killer} before they get to {stem}"
                    found.append(Problem(FindingKind.MISPLACED, detail))
                elif twin is not None:
                    found.append(_twin(twin, stem))
                elif one.taken and not one.problems:
                    served = served or stem
                killer = killer or (stem if one.kills else "")
                if one.taken:
                    taken.setdefault(one.digest, one)
            found += self._times(item, numbers, stem)
        return served, found, notes

    def _under_lock(self, item: Files, stem: str) -> Problem | None:
        """The problem of a lock on an entry; misplaced if abandoned, as no program reads the entry."""
        name = stem + LOCK
        if name not in item.seen:
            return None
        kind = FindingKind.MISPLACED if self._is_stale(item, name) else FindingKind.LOCKED
        detail, _, remedy = self._lock_told(item, name, _LOCKED).rpartition("; ")
        return Problem(kind, detail, remedy, None if self._breakable(item, name) else ())

    def _times(self, item: Files, numbers: Numbers, stem: str) -> Iterator[Problem]:
        """A problem if an entry lacks a time that libsycl's eviction uses, where that was ever on."""
        name = stem + ACCESS
        if ACCESS in numbers.suffixes[stem]:
            if access_number(item, stem) is None:
                detail = f"{name} contains no time, so libsycl evicts the entry before all others"
                yield Problem(FindingKind.ORPHAN, detail)
        elif BINARY in numbers.suffixes[stem] and os.path.lexists(self.root / SIZE_FILE):
            detail = f"{name} is missing, so libsycl never evicts the entry until it is used again"
            yield Problem(FindingKind.ORPHAN, detail, paths=())

    def _around(self, item: Files, numbers: Numbers) -> Iterator[tuple[str, Problem]]:
        """Names in a directory of entries that belong to none, each with its effect."""
        strange = (files_of.stranger(item, numbers, stem) for stem in numbers.stems)
        for name in (*numbers.others, *filter(None, strange)):
            detail = f"{name} next to the entries is not libsycl's and is left alone"
            yield name, Problem(FindingKind.LEFTOVER, _not_ours(name) if "." in name else detail, paths=())
        for stem, suffixes in numbers.suffixes.items():
            present = numbers.present(stem)
            if ACCESS in suffixes and not present and LOCK not in suffixes:
                name = stem + ACCESS
                detail = f"{name} has the last use of an entry that is gone"
                ours = access_number(item, stem) is not None or item.seen[name].st_size == 0
                yield name, Problem(FindingKind.ORPHAN, detail, paths=None if ours else ())
            if LOCK in suffixes and not present:
                yield stem + LOCK, self._lock(item, stem + LOCK, _holding(numbers, stem))
            if ACCESS_LOCK in suffixes:
                yield stem + ACCESS_LOCK, self._lock(item, stem + ACCESS_LOCK, _TIMES)

    # Locks.

    def _lock(self, item: Files, name: str, effect: str) -> Problem:
        told = self._lock_told(item, name, effect)
        return Problem(FindingKind.LOCKED, told, paths=None if self._breakable(item, name) else ())

    def _is_stale(self, item: Files, name: str) -> bool:
        return self.now_ns() - item.seen[name].st_mtime_ns > STALE_NS

    def _breakable(self, item: Files, name: str) -> bool:
        """Whether a lock is abandoned."""
        return self._is_stale(item, name) and not _is_strange(item, name)

    def _lock_told(self, item: Files, name: str, effect: str) -> str:
        """A sentence on the meaning of a lock of some age."""
        if _is_strange(item, name):
            return (
                f"{name} is not empty as libsycl's locks are, so it may be another program's and "
                f"stays; move it elsewhere, as with it {effect}"
            )
        if self._is_stale(item, name):
            age = format_age(self.now_ns() - item.seen[name].st_mtime_ns)
            return (
                f"{name} is {age} old, and as it names no process it counts as abandoned after "
                f"10 min: {effect}; 'gpucache verify --cache sycl --repair' removes it"
            )
        return (
            f"{name} is less than 10 min old, so a program may have it; if none does: {effect}; "
            f"wait, or remove {name} by hand once no program runs"
        )

    @contextmanager
    def _held(self, folder: Folder, item: Files, stems: Sequence[str]) -> Iterator[None]:
        """Take the locks of some numbers, in libsycl's order; raises HeldError, OSError."""
        with ExitStack() as taken:
            for name in (stem + LOCK for stem in stems):
                if name in item.seen and _is_strange(item, name):
                    raise HeldError(f"{name} is not a lock of libsycl, as it is not empty; move it elsewhere")
                if name in item.seen and self._is_stale(item, name):
                    age = format_age(self.now_ns() - item.seen[name].st_mtime_ns)
                    raise HeldError(f"{name} is {age} old and abandoned; {fix(self.location)}")
                try:
                    taken.enter_context(files.held_by_name(folder, name, 0o200))
                except FileExistsError as error:
                    why = f"a program may be writing, as {name} exists; run it again later"
                    raise HeldError(why) from error
            yield

    # On the way to another machine.

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        """Device and driver in the key of a program, and the feature that a binary for CPUs needs."""
        told, stem = dict(look.toolchain), Numbers.of(item).stems[0]
        if told:
            opencl = "OpenCL" in told.get("platform name", "")  # other backends name and count otherwise
            for label, fact in (("device name", Fact.ARCHITECTURE), ("driver version", Fact.DRIVER)):
                if label in told:
                    yield fact if opencl else f"{label} of {told['platform name']}", told[label]
        with suppress(DamagedError):
            binary = Binary(item, stem)
            yield from needed(binary.part(binary.payload, SHOWN_BYTES))

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        """Binaries and keys, without the times of their uses."""
        moved = super().files_to_move(item)
        return sorted(one for one in moved if one.name.endswith((BINARY, SOURCE)))

    def placed(self, entry: PortableEntry, root: Path) -> Sequence[PortableFile]:
        """The files, with times of use where libsycl evicts by them."""
        if root != self.root or not os.path.lexists(self.root / SIZE_FILE):
            return entry.files
        now, ends = str(self.now_ns()).encode(), len(BINARY)
        stems = [one.name[:-ends] for one in entry.files if one.name.endswith(BINARY)]
        return [*(PortableFile(stem + ACCESS, now, 0o644) for stem in stems), *entry.files]

    def publish(self, entry: PortableEntry, move: Callable[[], bool]) -> bool:
        """The entry, and then its size in the total."""
        done = move()
        if done:
            self._resize(sum(len(one.data) for one in entry.files))
        return done

    # Removal.

    def unchanged(self, item: Files) -> bool:
        """Whether the binaries and keys of all its numbers are those that the scan saw."""
        return _identities(item) == _identities(item.again())

    def remove(self, item: Files) -> Kept | None:
        """Remove all numbers of its directory, under their locks, and the directories that are empty then."""
        now = item.again()
        numbers = Numbers.of(now)
        strange = {stem: files_of.stranger(now, numbers, stem) for stem in numbers.stems}
        own = [stem for stem, name in strange.items() if not name]
        if _identities(now) != _identities(item) or not own:
            return Kept(_not_ours(next(iter(strange.values())))) if strange and not own else Kept()
        spent = [
            one
            for one in numbers.suffixes
            if not numbers.present(one) and access_number(now, one) is not None
        ]
        with now.open() as folder, self._held(folder, now, own):
            for stem in (*own, *spent):
                for name in numbers.files(stem):
                    _unlink(folder, name)
        self._resize(-_content_bytes(now, own))
        self.tidy(item.parts, len(item.parts))
        return None

    def discard(self, item: Files) -> Kept | None:
        """Remove an entry like ``remove``, after its abandoned locks."""
        now = item.again()
        locks = [name for name in now.names if name.endswith(LOCK) and "/" not in name]
        with now.open() as folder:
            for name in locks:
                if not self._breakable(now, name):
                    raise HeldError(f"a program may be writing, as {name} exists")
            for name in locks:
                _unlink(folder, name)
        return self.remove(item)

    # Leftovers, and the whole cache.

    def beside(self) -> Iterator[Checked]:
        """Directories without entries, links, strangers, and directories that others may write to."""
        yield from super().beside()
        for item in self.items(""):
            numbers = Numbers.of(item)
            if numbers.stems:
                continue
            found = list(self._around(item, numbers))
            if not found:
                detail = f"{'/'.join(item.parts)} is empty, as eviction leaves it"
                yield self.told(item.folder, Problem(FindingKind.LEFTOVER, detail))
            for name, problem in found:
                yield self.told(item.folder / name, problem)

    def whole(self) -> Iterator[Checked]:
        """The file of the size and its lock, and those of eviction: named by the root's path with a suffix,
        they are next to the root, or in it if SYCL_CACHE_DIR ends in a slash."""
        if problem := self._size_problem():
            yield self.told(self.root / SIZE_FILE, problem)
        places_of = ((self.root.parent, self.root.name + EVICTION), (self.root, EVICTION))
        for folder, name in places_of if self.root.name else places_of[1:]:
            if os.path.lexists(folder / name):
                # Programs wait for the name without .lock, which none of them creates.
                detail = f"while {name} exists every program that adds an entry hangs"
                yield self.told(folder / name, Problem(FindingKind.MISPLACED, detail))
        for path, effect in (
            (self.root / SIZE_LOCK, _SPINS),
            *((folder / (name + LOCK), "the cache is never evicted again") for folder, name in places_of),
        ):
            if item := _file(path):
                spins = effect is _SPINS and self._is_stale(item, path.name)
                told = self._lock_told(item, path.name, effect)
                kind = FindingKind.MISPLACED if spins else FindingKind.LOCKED
                yield self.told(path, Problem(kind, told))

    def limits(self) -> Iterator[str]:
        """Limits that the stored entries show to be wrong, if programs of this machine use them."""
        limit, bounds = self.location.limit_bytes, Bounds.of(os.environ)
        if self.location.decided_by == "--cache":
            return
        if limit and limit >= LITTLE_BYTES and (stored := self._summed()) > limit:
            yield (
                f"the limit is too small: {format_size(stored)} are stored and {MAX_SIZE} allows "
                f"{format_size(limit)}, so libsycl evicts when the next entry is added; "
                f"export {MAX_SIZE}={2 * stored}"
            )
        if bounds != Bounds():
            sizes = []
            for item in self._present():
                with suppress(OSError, FormatError):
                    if family_of(item) == "program":
                        sizes.append(Source(item, Numbers.of(item).stems[0]).images.length)
            if sizes and all(map(bounds.refusal, sizes)):
                names = " ".join(bounds.names)
                yield (
                    f"{names.replace(' ', ' and ')} keep out the images of all {len(sizes)} entries that are "
                    f"stored, so programs compile them at every run; unset {names}"
                )

    def clear(self, checked: Checked) -> Checked:
        """Remove an abandoned lock, an orphan time or an empty directory; write the true size."""
        path = Path(checked.entry)
        with suppress(OSError, FormatError, ValueError):
            if path == self.root / SIZE_FILE:
                return checked.fixed() if self._rewrite() else checked
            if (item := _file(path)) is None:
                return checked
            if path.name.endswith(LOCK):
                ours = self._breakable(item, path.name)
            elif path.name.endswith(ACCESS):
                empty = item.seen[path.name].st_size == 0
                ours = empty or access_number(item, path.name.removesuffix(ACCESS)) is not None
            else:
                ours = path.name.endswith(EVICTION) and not _is_strange(item, path.name)
            if ours:
                path.unlink()
            parts = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ()
            for folder in (parts, parts[:-1]):
                if self.layout.key_at(folder):
                    self.tidy(folder, len(folder))
            return checked if os.path.lexists(path) else checked.fixed()
        return checked

    def _summed(self) -> int:
        """The bytes of all entries as libsycl adds them up. Raises nothing."""
        return sum(_content_bytes(item, Numbers.of(item).stems) for item in self._present())

    def _size_problem(self) -> Problem | None:
        """The problem of the size file; None if it is sound or missing."""
        try:
            with Folder.at(self.root) as folder:
                data = files.read(folder, SIZE_FILE, _SIZE_BYTES)
        except FileNotFoundError:
            return None
        except (OSError, FormatError) as error:
            return Problem(FindingKind.UNTRUSTED, f"{error}: {_WRITERS_DIE}")
        number = _size_of(data)
        if number is None:
            shown = data.partition(b"\n")[0][:20].decode("ascii", "replace")
            strange = "" if _SIZE_LIKE.fullmatch(data) else f"; it {_NO_SIZE}"
            detail = f"{SIZE_FILE} contains {shown!r}, which is not a size: {_WRITERS_DIE}{strange}"
            return Problem(FindingKind.CORRUPT, detail)
        if number < 0:
            detail = f"{SIZE_FILE} is negative: programs evict at every entry they add"
            return Problem(FindingKind.CORRUPT, detail)
        summed = self._summed()
        if abs(number - summed) <= max(_SLACK_BYTES, summed // 4):
            return None  # libsycl itself counts in two ways
        effect = "evicts too early" if number > summed else "lets the cache grow too large"
        detail = (
            f"{SIZE_FILE} says {format_size(number)} and the entries take {format_size(summed)}, so libsycl "
            f"{effect}"
        )
        return Problem(FindingKind.ORPHAN, detail)

    def _resize(self, change: int) -> None:
        """Add a change to a size that is sound and not locked; otherwise leave it to verify."""
        with suppress(OSError, FormatError, HeldError), self._size() as (folder, data):
            if (number := _size_of(data)) is not None and number >= 0:
                files.overwrite(folder, SIZE_FILE, str(max(0, number + change)).encode(), whole=True)

    def _rewrite(self) -> bool:
        """Write the true size if the file exists; whether it is right now."""
        path = self.root / SIZE_FILE
        if not stat.S_ISREG(path.lstat().st_mode):
            path.unlink()  # libsycl makes a new one
            return True
        with suppress(HeldError), self._size() as (folder, data):
            if _SIZE_LIKE.fullmatch(data):
                files.overwrite(folder, SIZE_FILE, str(self._summed()).encode(), whole=True)
                return True
        return False

    @contextmanager
    def _size(self) -> Iterator[tuple[Folder, bytes]]:
        """The root and the content of the size file, under its lock; the file must exist."""
        with Folder.at(self.root) as folder:
            folder.lstat(SIZE_FILE)
            item = _file(self.root / SIZE_LOCK)
            seen = Files(self.root, (), "", item.seen if item else {})
            with self._held(folder, seen, [SIZE_FILE]):
                yield folder, files.read(folder, SIZE_FILE, _SIZE_BYTES)


def fix(location: Location) -> str:
    """The command that repairs a cache, with its place if no variable leads to it."""
    by_hand = location.decided_by == "--cache"
    name = shlex.quote(f"{location.cache}:{location.root}") if by_hand else location.cache
    command = f"gpucache verify --repair --cache {name}"
    return f"run {command}" if "'" in name else f"run '{command}'"


_OFF = "SYCL_CACHE_PERSISTENT is not set to 1; export SYCL_CACHE_PERSISTENT=1"


def _not_ours(name: str) -> str:
    """Why a file that is numbered like libsycl's is left alone."""
    return f"{name} does not begin like libsycl's files, so it may be another program's; move it elsewhere"


def _described(look: CacheEntry, item: Files, source: Source) -> CacheEntry:
    """The description of an entry in its ``.src``."""
    pairs, names = source.pairs, source.kernels
    device = tuple(pair for pair in pairs if pair[0] in DEVICE_LABELS)
    _, image, spec, _ = (f"{int(part):016x}" for part in item.parts)
    fields = dict(source.fields())
    more = f" spec {spec[:12]}" if source.spec.length else ""
    target = "/".join(value for label, value in pairs if label in (*IDENTITY_LABELS, "device"))
    return look._replace(
        program=files_of.shown(names, source.part(source.images, NAMED_BYTES)),
        target=target,
        # Kernels of two programs may share a name, so only the image identifies another version.
        variant=f"{fields['build options'][:_VARIANT_SHOWN]}{more} image {image[:12]}".strip(),
        toolchain=device,
        toolchain_identity=IDENTITY_LABELS if device else (),
        fields=(*source.fields(), ("image", image), *(("kernel", name) for name in names[:_NAMES_SHOWN])),
    )


def _used_ns(item: Files, numbers: Numbers, stem: str) -> int:
    """The runtime's own note, which it renews only with eviction on, or a read that the disk noted."""
    seen = [access_number(item, stem) or 0]
    for status in (item.seen[name] for name in numbers.files(stem) if name.endswith((BINARY, SOURCE))):
        seen.append(status.st_mtime_ns)
        # A copy or a move sets the access time as well as the change time: only a later one is a read.
        if status.st_atime_ns > max(status.st_mtime_ns, status.st_ctime_ns):
            seen.append(status.st_atime_ns)
    return max(seen)


def _stored(item: Files, stem: str) -> Iterator[tuple[str, str]]:
    """The stored key as text, by label."""
    if family_of(item) != "program":
        yield "key", f"not stored by a {family_of(item)}; only its hashes are known"
        return
    source = Source(item, stem)
    yield from source.fields()
    if unseen := source.images.unseen:
        yield "image", f"{format_size(source.images.length)}, {unseen}"
        return
    yield "image", f"{format_size(source.images.length)}, SHA-256 {source.sha256(source.images)}"
    names = source.kernels
    yield from (("kernel", name) for name in names[:_NAMES_SHOWN])
    if len(names) > _NAMES_SHOWN:
        yield "kernels", f"{len(names)} in all"


@contextmanager
def _noting(wrong: list[Problem]) -> Iterator[None]:
    """Add a file's problem to a list."""
    try:
        yield
    except DamagedError as error:
        wrong.append(Problem(error.kind, error.detail))
    except (OSError, FormatError) as error:
        wrong.append(Problem(FindingKind.UNTRUSTED, str(error)))


def _beyond(numbers: Numbers, stem: str) -> str:
    """Why programs stop before a number; empty if they reach it."""
    hole = numbers.hole
    if stem == IR_STEM or order(stem) <= hole:
        return ""
    stop = f"programs stop looking at {hole}, which is missing, and never get to {stem}"
    if LOCK in numbers.suffixes.get(str(hole), set()):
        return f"{stop}: as {hole}{LOCK} keeps it free, they add another copy at every run"
    return f"{stop} until they fill the gap with another copy"


def _twin(lower: Number, own: str) -> Problem:
    if not lower.problems:
        detail = f"{own} is a copy of {lower.stem}, which programs take; it only takes room"
        return Problem(FindingKind.SUPERSEDED, detail)
    detail = f"programs take {lower.stem} for it, which is damaged, and never get to {own}"
    return Problem(FindingKind.MISPLACED, detail)


def _holding(numbers: Numbers, stem: str) -> str:
    """The effect of a lock without an entry."""
    if stem == IR_STEM:
        return "the program is compiled at every run and never kept"
    above = [one for one in numbers.stems if order(one) > order(stem)]
    unseen = f" (now {', '.join(above[:3])}{'...' if above[3:] else ''})" if above else ""
    return f"programs write their copy above {stem}{unseen}, never look there, and add one at every run"


def _size_of(data: bytes) -> int | None:
    """The first line as ``std::stoull`` reads it, negative for one below 0; an empty file counts as 0."""
    number = _NUMBER.match(data.partition(b"\n")[0])
    if not data:
        return 0
    if number is None or int(number[2]) >= 1 << 64:
        return None
    return -1 if number[1] == b"-" else int(number[2])


def _content_bytes(item: Files, stems: Sequence[str]) -> int:
    names = [stem + suffix for stem in stems for suffix in (BINARY, SOURCE)]
    return sum(item.seen[name].st_size for name in names if name in item.seen)


def _identities(item: Files) -> Mapping[str, Identity]:
    return {
        name: Identity.of(status)
        for name, status in item.seen.items()
        if name.endswith((BINARY, SOURCE)) and "/" not in name
    }


def _is_strange(item: Files, name: str) -> bool:
    """Whether a file with a lock's name is not a lock: libsycl makes empty files."""
    return not stat.S_ISREG(item.seen[name].st_mode) or item.seen[name].st_size > 0


def _file(path: Path) -> Files | None:
    """The problem of a file that belongs to no entry; None if it does not exist."""
    with suppress(OSError, ValueError):
        return Files(path.parent, (), "", {path.name: path.lstat()})
    return None


def _unlink(folder: Folder, name: str) -> None:
    with suppress(FileNotFoundError):
        folder.unlink(name)
