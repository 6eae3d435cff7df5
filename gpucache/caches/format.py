"""The interface of a cache format: the facts and small functions that a system gives the engine.

To add a system, write a row in ``systems``, and a class ``of`` that row, named in ``registry``, that inherits
``Format`` and has its facts and ``look``, ``check`` and ``payload``; ``cupy`` and ``jax`` are
the shortest examples. The engine owns the rest: places and their problems, scanning, races with the owner,
unreadable entries, removal, repair and its marks, and the sentences common to all systems. Rare needs of
single systems have methods in this class that do nothing by default.

Every opened cache gets a new format object, which may remember its findings. Its class methods work without a
cache. Nothing found in a cache is loaded, unpickled or executed, and every length is bounded before anything
is allocated.

Entries are files, or directories of files, that a layout names; one that is a part of a file, such as a row,
has its ``detail``. Owns which users' files are trusted, the removal of an entry's files, the reports on
everything that is not an entry (links, unreadable directories, leftovers of dead writers, strangers), and the
owners' files next to their entries that a removal must respect: a lock, and the sum of all sizes. Must not
know any system.
"""

import os
import re
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar, cast

from gpucache.answers.entries import CacheEntry, FindingKind, Location, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked, Finding
from gpucache.answers.why import Reach
from gpucache.caches import files, interpreters, places
from gpucache.caches.comparison import Field, compared
from gpucache.caches.files import (
    HERE,
    LARGEST_BYTES,
    Files,
    Frame,
    Identity,
    LargeError,
    NameTally,
    Parts,
    listed,
)
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Layout, Node, Role, Whose
from gpucache.caches.places import Places
from gpucache.caches.portable import Fact, Moving, PortableEntry, PortableFile, Start
from gpucache.caches.systems import PLACES
from gpucache.errors import FormatError, UsageError
from gpucache.folders import Folder
from gpucache.model import BuildRequest, Toolchain
from gpucache.payload import describe
from gpucache.units import format_age, format_size, printable

_BEGINNING_BYTES = 64 << 10
_PATIENCE_S = 10
_SUM_BYTES = 8
SECOND_NS = 10**9
_UNSOUND = frozenset({FindingKind.TRUNCATED, FindingKind.CORRUPT, FindingKind.MISLABELLED})
HOUR_NS = 3600 * SECOND_NS
_EXACT = re.compile(r"\d+\.\d+\.\d+[\w.+]*\Z", re.ASCII)
"""A text that is one version, as some entries record a range of versions."""
_CUDA = re.compile(r"(sm|compute)_(\d+)([af]?)\Z", re.ASCII)
Clock = Callable[[], int]
Check = Callable[["Format", Files], Problem | None]
"""The problems of an entry of a format, after all checks of it."""


def architecture(target: str) -> tuple[Fact, str]:
    """The fact about the architecture in a target: ``sm_90`` of ``cuda:sm_90a``, ``gfx942`` of one with
    features, ``compute_80`` of a PTX, which later architectures take as well."""
    arch = target.partition(":")[2] or target
    if (cuda := _CUDA.match(arch)) is None:
        return Fact.ARCHITECTURE, arch.partition(":")[0] if arch.startswith("gfx") else arch
    kind, number, only_here = cuda.groups()
    if kind == "compute" and not only_here:
        return Fact.PTX, arch
    return Fact.ARCHITECTURE, f"sm_{number}"


class HeldError(Exception):
    """The owner's lock is held, so nothing was changed; the message is a sentence with the remedy."""


class UnjudgedError(FormatError):
    """An entry cannot be judged now, such as one that is being written; the message is a note."""


class Format(Places):
    """One kind of cache. What its layout does not name is a stranger: reported, and never touched.

    Methods about an entry may raise OSError, and FormatError for one that is not valid; FileNotFoundError
    means that the owner removed the entry meanwhile. The effect of a damaged entry on a program belongs in
    the detail of the problem.
    """

    wanted: ClassVar[Mapping[str, str]] = {"key": "hex digits of an entry, as 'gpucache inspect' lists them"}
    compared: ClassVar[Mapping[str, Field]] = {}
    """The fields of an entry by which a question is answered, and how much a difference in each counts."""
    opaque: ClassVar[str] = ""
    """Why no miss can be explained, a clause with the alternative; empty if no input of a key is stored and
    the alternative are the variables of ``tracing``."""
    decides: ClassVar[str] = ""
    """The field that decides whether a program finds an entry at all."""
    unstored: ClassVar[str] = "key"
    """The inputs of a key that no entry stores, as words of a sentence."""
    absent: ClassVar[str] = (
        "no entry has this key: it was never built, or was removed, of which no record is kept"
    )
    served: ClassVar[str] = ""
    """The message for a requested sound entry, if the owner may still not serve it."""
    serves_orphans: ClassVar[bool] = False
    """Whether the owner serves an entry of which a part is missing."""
    serves_others: ClassVar[bool] = False
    """Whether the owner serves the binary of another entry or device, which its programs then use."""
    trusts_variables: ClassVar[bool] = False
    """Whether a place that a variable names is never considered foreign."""
    tells_strangers: ClassVar[bool] = True
    """Whether other files in a place are reported; else people keep them there, too."""
    leaves_to_owner: ClassVar[bool] = True
    checksums: ClassVar[bool] = False
    """Whether ``check`` compares the content with a checksum that the owner stored."""
    together: ClassVar[int] = 1
    """The maximum number of removals that share one lock or commit, to cost the owner's programs less."""
    moving: ClassVar[Moving] = Moving(
        "its programs were never seen to hit an entry of another machine; copy the whole directory to "
        "machines of one GPU and driver"
    )
    """How entries move to another machine: only those of owners that were seen to hit them afterwards."""
    target_is: ClassVar[str | None] = ""
    """The fact that the target states; empty for the architecture, None if it states no fact."""
    tells_toolchain: ClassVar[bool] = False
    """Whether the toolchain of an entry has to be the same elsewhere."""
    distribution: ClassVar[str] = ""
    """The owner's package on PyPI, if an entry records its version, its place, or a version of Python."""
    fixes: ClassVar[frozenset[FindingKind]] = frozenset(kind for kind in FindingKind if kind.wrong)
    """The kinds of problems that removal of the entry fixes, as the owner then builds it again."""

    layout: ClassVar[Layout]
    frames: ClassVar[Sequence[Frame]] = ()
    """Frames with the parts and rules of its files; the first frame whose names fit is used."""
    folders_removed: ClassVar[int] = 0
    """The number of directories above an entry's files that are removed with the last file in them."""
    bare: ClassVar[str] = ""
    """The owner's use of an entry's directory without its files, a clause that begins with a verb; if
    that is harmful, no entry is removed while its directory has other files."""

    largest_bytes: ClassVar[int] = LARGEST_BYTES
    links: ClassVar[Sequence[str]] = ()
    """The owner's packages on PyPI, whose environment has the libraries that cached ones need."""
    index: ClassVar[str] = ""
    """The file in the root with a row for each entry, of which an entry that moves has its row; empty for
    none."""
    barred_by_links: ClassVar[bool] = True
    """Whether a link or special file keeps an entry from being read; else it is one problem of many."""
    lock_name: ClassVar[str] = ""
    """The file that the owner's programs lock while they write, if one of them made it; empty for none."""
    lock_is_record: ClassVar[bool] = False
    """Whether the owner's programs take the lock with fcntl(2) instead of flock(2)."""
    sum_name: ClassVar[str] = ""
    """The file that begins with the sum of all sizes as u64, by which the owner evicts; empty for none."""
    sum_is_alone: ClassVar[bool] = False
    without_sum: ClassVar[str] = ""
    """A clause that tells how the owner treats an unreadable sum."""
    _was_held = False
    _uncorrected = ""
    _kept: list[Node] | None = None
    _said: tuple[str, dict[str, None]] = "", {}
    """The entry that was checked last, and the limits of that check."""
    _parts: tuple[Files | None, dict[str, Parts]] = None, {}
    """The entry that was judged last, as a scan saw it, and the parts of its files."""

    def __init_subclass__(cls, of: str = "", **others: Any) -> None:
        """``of`` is the name of a row of ``systems``, whose facts this format takes over."""
        super().__init_subclass__(**others)
        for fact, value in vars(PLACES[of]).items() if of else ():
            if fact not in vars(cls):
                setattr(cls, fact, value)

    def __init__(self, location: Location, clock: Clock = time.time_ns) -> None:
        self.location = location
        self.root = Path(location.root)
        self.now_ns = clock
        self.closed_folders: dict[Path, str] = {}
        """The reasons why directories of entries could not be read so far, a sentence each."""
        self.keeps_beside = False
        """Whether the next full walk over the entries keeps all other nodes for ``beside``."""

    # Questions without a cache.

    @classmethod
    def opened(cls, location: Location) -> Location:
        """A location with the problems of its place, if it does not list them yet."""
        found = location.problems or tuple(cls.at_place(Path(location.root)))
        return location._replace(problems=found)

    @classmethod
    def question(cls, request: BuildRequest, toolchain: Toolchain) -> Wanted:
        """The question for ``explain`` that shows whether the cache would serve a build."""
        return {}

    @classmethod
    def require(cls, root: Path) -> None:
        """Raise CacheUnusableError if this cannot be a cache, such as a file in place of a directory."""
        places.require_folder(root, f"name the directory of a cache of {cls.owner}")

    @classmethod
    def whose(cls, path: Path) -> Whose:
        """The owner of a file or directory, by its content; raises OSError, ValueError."""
        return cls.layout.whose(path)

    # Entries.

    def items(self, prefix: str) -> Iterator[Files]:
        """Every entry whose key begins with some digits, one by one; raises OSError if the root cannot be
        read."""
        nodes: list[Node] | None = None if prefix or not self.keeps_beside else []

        def beside(node: Node) -> None:
            if node.error is not None:
                path, why = self.root.joinpath(*node.parts), node.error.strerror
                unread = f"{path} cannot be read ({why}), so its contents are unknown; fix its permissions"
                self.closed_folders[path] = unread
            if nodes is not None and (node.role is not Role.FOLDER or self._beside(node)):
                nodes.append(node)

        yield from self.layout.items(self.root, prefix, beside)
        self._kept = nodes

    def entry(self, item: Files) -> CacheEntry:
        """The facts of an entry from its names, sizes and times."""
        return CacheEntry(
            self.name,
            item.key,
            os.path.join(item.root, *item.parts, *(() if HERE in item.seen else item.names[:1])),  # noqa: PTH118 - faster
            item.size_bytes,
            item.written_ns,
            item.used_ns,
            unique=True,
            stays=self.stays(item),
            files=len(item.seen),
            handle=item,
        )

    def look(self, item: Files) -> CacheEntry | None:
        """Complete a scanned entry from the beginning of its content; None if it is not an entry."""
        return self.entry(item)

    def check(self, item: Files) -> Iterator[Problem]:
        """Problems of, or notes on, an entry's content; it is read whole. Or UnjudgedError."""
        if (entry := self.look(item)) and entry.damage:
            yield entry.damage
            return
        for name in item.names:
            yield from self.judged(item, name)

    def payload(self, item: Files) -> bytes:
        """The compiled bytes, unchecked; raises FormatError if there are none."""
        return item.read(item.names[0], self.largest_bytes)

    def has_checksum(self, item: Files) -> bool:
        """Whether one entry has a checksum, if a system has both kinds."""
        return self.checksums

    def unsound(self, item: Files) -> Problem | None:
        """Why the payload cannot be returned; None if it is sound."""
        return next((one for one in self.check(item) if one.kind in _UNSOUND), None)

    def bars(self, item: Files) -> Problem | None:
        """The reason an entry cannot be read at all, so that it is neither identified nor checked."""
        for name, status in item.seen.items() if self.barred_by_links else ():
            expected = stat.S_ISREG(status.st_mode) or (HERE in item.seen and stat.S_ISDIR(status.st_mode))
            if not expected:
                return self.no_file(status, name if len(item.seen) > 1 else "it")
        return None

    def stays(self, item: Files) -> str:
        """Why the entry must not be removed: its directory, with other files, does harm without it."""
        if not self.bare:
            return ""
        with item.open() as folder:
            others = listed(found.name for found in folder.entries() if found.name not in item.seen)
        why = (
            f"its directory has {others} as well and would stay without it, and then {self.owner} {self.bare}"
        )
        return f"{why}; move that elsewhere" if others else ""

    def trust(self, item: Files) -> Iterator[Problem]:
        for name, status in item.seen.items():
            if why := places.distrust(status, move=self.place.move):
                what = "" if len(item.seen) == 1 else "of its directory: " if name == HERE else f"{name}: "
                yield Problem(FindingKind.UNTRUSTED, what + why)

    def notes(self, item: Files) -> Iterator[str]:
        """Facts that a check of an entry could not determine, a sentence each."""
        yield from self._said[1] if self._said[0] == item.key else ()

    def unchanged(self, item: Files) -> bool:
        """Whether an entry is unchanged since the scan."""
        return item.unchanged()

    def remove(self, item: Files) -> Kept | None:
        """Remove an entry if it is unchanged since the scan; None once removed."""
        if not item.unchanged():
            return Kept()
        for name in self.removal_order(item.names):
            *below, last = name.split("/")
            with suppress(FileNotFoundError), item.open(*below) as folder:
                if stat.S_ISDIR(item.seen[name].st_mode):
                    if HERE in item.seen:
                        folder.rmdir(last)
                    else:
                        self._move_away(folder, last)
                elif Identity.of(folder.lstat(last)) == Identity.of(item.seen[name]):
                    folder.unlink(last)
                else:  # the owner created it again meanwhile
                    return Kept()
        if item.path == item.folder:
            with files.open_folder(item.root, *item.parts[:-1]) as above:
                above.rmdir(item.parts[-1])
        self.tidy(item.parts, self.folders_removed)
        if self.sum_name:
            self._correct(-self.summed(item))
        return None

    def filed_as(self, key: str) -> str:
        """The digits by which the entry of a full key is stored, if they differ from the key; else empty."""
        return ""

    def finish_removals(self) -> Sequence[str]:
        """Apply the owner's rules after removals (totals, empty directories): sentences that report it."""
        return (self._uncorrected,) if self._uncorrected else ()

    def lock(self, item: Files) -> AbstractContextManager[None]:
        """Take the lock if it exists; only the first entry waits long, as a thousand would wait for hours."""

        def take(fd: int) -> str:
            if files.take_lock(fd, 0 if self._was_held else _PATIENCE_S, record=self.lock_is_record):
                return ""
            self._was_held = True
            return f"{self.owner}'s lock is held; try again once the program that has it is done"

        flags = os.O_RDWR if self.lock_is_record else 0
        place = (*self.lock_place(item), self.lock_name)
        return self.holding(*place, take=take, flags=flags) if self.lock_name else nullcontext()

    def remove_together(self, items: Sequence[Files]) -> Sequence[Kept | None]:
        """Remove up to ``together`` entries like ``remove``: the outcome of each, in their order."""
        return [self.remove(item) for item in items]

    def strip(self, item: Files) -> bool:
        """Remove the ``spare_bytes``; whether all of them are gone. Raises OSError, FormatError."""
        return False

    def discard(self, item: Files) -> Kept | None:
        """Remove an entry that is damaged, which may be in use as well."""
        return self.remove(item)

    def take(self, item: Files, paths: Sequence[str]) -> bool:
        """Remove some files of an entry as the scan saw them; whether they are gone. Raises OSError."""
        gone = True
        for name in paths:
            *below, last = name.split("/")
            with suppress(FileNotFoundError), item.open(*below) as folder:
                same = Identity.of(folder.lstat(last)) == Identity.of(item.seen[name])
                gone &= same
                if same and stat.S_ISDIR(item.seen[name].st_mode):
                    self._move_away(folder, last)
                elif same:
                    folder.unlink(last)
        return gone

    def fix(self, item: Files, problems: Sequence[Problem]) -> Sequence[Problem]:
        """Repair an entry that was just found to have these problems, if possible; returns the fixed ones.

        Raises HeldError, whose sentence is added to the findings, and OSError.
        """
        if any(one.paths is None and one.kind in self.fixes for one in problems):
            with self.lock(item):
                kept = self.discard(item)
            if kept is not None and not kept.gone:
                raise HeldError(kept.reason)
            return [one for one in problems if (one.kind, one.paths) != (FindingKind.LEFTOVER, ())]
        return [one for one in problems if one.paths and self.take(item, one.paths)]

    # Entries on their way to another machine.

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        """The facts that must be the same elsewhere for a hit: labels of ``Fact``, or of the system, and
        values. Of several with one label one suffices."""
        if look.target and self.target_is is not None:
            yield (self.target_is, look.target) if self.target_is else architecture(look.target)
        if self.tells_toolchain:
            yield from (pair for pair in look.toolchain if pair[1])
        if self.distribution and look.toolchain and _EXACT.match(look.toolchain[0][1]):
            yield Fact.VERSION, look.toolchain[0][1]

    def facts_here(self) -> Mapping[str, frozenset[str]]:
        """The known values of these facts on this machine, by label."""
        known: dict[str, frozenset[str]] = {Fact.PLACE: frozenset({str(self.root)})}
        if self.distribution:
            known[Fact.VERSION] = interpreters.versions_of(self.distribution)
            known[Fact.PATH] = interpreters.places_of(self.distribution)
            known[Fact.PYTHON] = interpreters.versions()
        return {label: values for label, values in known.items() if values}

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        """The files of a sound entry in their portable form, in the order in which the owner publishes them;
        raises FormatError if this entry cannot move, OSError."""
        modes = {name: status.st_mode for name, status in item.seen.items() if stat.S_ISREG(status.st_mode)}
        return [
            PortableFile(
                "/".join((*item.parts, name)), item.read(name, self.largest_bytes), stat.S_IMODE(mode) & 0o777
            )
            for name in reversed(self.removal_order(item.names))
            if (mode := modes.get(name))
        ]

    def holds(self, item: Files, names: Collection[str]) -> bool:
        """Whether a sound entry here has all files of the same from elsewhere, of these portable names; one
        that does not is merged with it. Raises FormatError, OSError."""
        return True

    def restoring(self, check: Check) -> AbstractContextManager[Start]:
        """Writes entries that came from elsewhere; ``check`` judges an entry of any format.

        Both functions raise FormatError for one that is not sound, HeldError, OSError.
        """
        from gpucache.caches.restoring import restoring  # only pull needs it

        if self.moving.why_not:
            raise FormatError(self.moving.why_not)
        return restoring(self, check)

    # Facts of an entry besides its look.

    def log(self, item: Files) -> str:
        """The compiler's log of an entry, if it has one. Raises FormatError, OSError."""
        return ""

    def content(self, item: Files, entry: CacheEntry) -> Iterable[tuple[str, str]]:
        try:
            return describe(self.payload(item)).pairs
        except LargeError as error:
            return (("binary", str(error)),)

    def inputs(self, item: Files, entry: CacheEntry) -> Iterable[tuple[str, str]]:
        """The report's facts about the key besides the fields, by label, and which inputs are not stored."""
        return () if self.compared else (("inputs of the key", f"not stored by {self.owner}"),)

    def answer(self, wanted: Wanted) -> Iterator[Reach] | None:
        """The answers, from fields of ``wanted``; None if entries store too few inputs. Raises UsageError."""
        return iter([compared(self, self.asked(wanted))]) if self.compared else None

    def asked(self, wanted: Wanted) -> Mapping[str, str]:
        """The values of a question as an entry's fields have them; raises UsageError."""
        if not any(wanted.values()):
            raise UsageError(f"no field is given; give one of {', '.join(self.wanted)}")
        return {label: printable(b" ".join(values), None) for label, values in wanted.items() if values}

    def stored(self, entry: CacheEntry, asked: Mapping[str, str]) -> Mapping[str, Sequence[str] | None]:
        """The values of an entry by field, maybe several; None for a field that it does not store."""
        found: dict[str, list[str]] = {}
        for label, value in entry.fields:
            found.setdefault(label, []).append(value)
        return found

    def hinders(self, entry: CacheEntry) -> Problem | None:
        """The problem that keeps programs from an entry with all requested fields; raises OSError."""
        return next(
            (one for one in self.check(cast("Files", entry.handle)) if one.kind and one.kind.wrong), None
        )

    # Everything that belongs to no entry.

    def whole(self) -> Iterator[Checked]:
        """Problems of the cache as a whole (totals, an index, a lock, a database), by their path, and notes;
        raises OSError."""
        if not self.sum_name:
            return
        try:
            with files.open_folder(self.root) as folder:
                size = len(files.read_part(folder, self.sum_name, 0, _SUM_BYTES + 1))
        except FileNotFoundError:
            return
        except FormatError as error:
            if (self.root / self.sum_name).is_dir():  # reported with all other files that are not entries
                return
            why = str(error)
        else:
            if size == _SUM_BYTES or (size > _SUM_BYTES and not self.sum_is_alone):
                return
            why = f"it has not the {_SUM_BYTES} bytes of one"
        detail = f"it has the sum of all sizes and cannot be parsed ({why}), so {self.without_sum}"
        yield self.told(self.root / self.sum_name, Problem(FindingKind.CORRUPT, detail))

    def closed(self) -> str:
        """Why the content of the place is unknown, a sentence; empty if it can be known."""
        return places.closed(self.root, move=self.place.move)

    def is_foreign(self) -> bool:
        """Whether the place is foreign, so that nothing in it is examined. Raises nothing."""
        named = self.location.decided_by == "--cache" or not self.trusts_variables
        with suppress(OSError, ValueError):
            return named and self.whose(self.root) is Whose.FOREIGN
        return False

    def beside(self) -> Iterator[Checked]:
        """Everything in the cache outside of entries; raises OSError if the root cannot be read."""
        strange = NameTally()
        for node in self._nodes():
            stranger = node.role is Role.STRANGER or (node.role is Role.LEFT and not self._is_left(node))
            if stranger and not self.tells_strangers:
                continue
            told = self._beside(node)
            if told is not None:
                yield self.told(self.root.joinpath(*node.parts), told)
            elif stranger:
                strange.add(node.parts[0])
        if strange.count:
            detail = f"it also contains {strange}: {self.owner} does not read or remove it; keep it elsewhere"
            yield self.told(self.root, Problem(FindingKind.LEFTOVER, detail))

    def clear(self, checked: Checked) -> Checked:
        """Remove a dead writer's leftover, if it still is one; move away a directory in place of a file."""
        with suppress(OSError, ValueError):
            parts = Path(checked.entry).relative_to(self.root).parts
            if not parts:  # all strangers in the root, which stay
                return checked
            with files.open_folder(self.root, *parts[:-1]) as folder:
                node = Node(Role.LEFT, parts, folder.lstat(parts[-1]))
                if self._is_old(node) and self._is_left(node):
                    folder.unlink(parts[-1])
                elif self.layout.is_own(parts) and stat.S_ISDIR(node.status.st_mode):
                    self._move_away(folder, parts[-1])
                else:
                    return checked
            left = self.layout.left_at(parts)
            if left and "(?P<pid>" in left[0].pattern.rpartition("/")[0]:  # its own directory
                with suppress(OSError), files.open_folder(self.root, *parts[:-2]) as above:
                    above.rmdir(parts[-2])
            return checked.fixed()
        return checked

    def told(self, path: Path, problem: Problem, name: str = "", program: str = "") -> Checked:
        """A problem outside of entries, as ``beside`` and ``whole`` return it; by its file's name."""
        finding = Finding.of(problem, self.name, name or path.name, program)
        return Checked(str(path), (finding,), counts=False)

    def _nodes(self) -> Sequence[Node]:
        """All nodes but entries and trusted directories, from the last scan or a walk."""
        if self._kept is None:
            self.keeps_beside = True
            deque(Format.items(self, ""), maxlen=0)
        kept, self._kept, self.keeps_beside = self._kept or (), None, False
        return kept

    def no_file(self, status: os.stat_result, what: str) -> Problem:
        """The problem of a link, a directory, a pipe or similar in place of one of the owner's files."""
        if stat.S_ISDIR(status.st_mode):
            return Problem(
                FindingKind.CORRUPT,
                f"{what} is a directory in place of a file: programs fail at it or compile again at every "
                f"start, and {self.owner} never replaces it; a repair moves it out of the way",
            )
        if stat.S_ISLNK(status.st_mode):
            return Problem(
                FindingKind.UNTRUSTED,
                f"{what} is a link, which {self.owner} follows: who can write to its target chooses the "
                "binary",
            )
        return Problem(
            FindingKind.UNTRUSTED,
            f"{what} is not a regular file: a program that opens it fails or waits for ever",
        )

    def judged(self, item: Files, name: str, *, whole: bool = True) -> Iterator[Problem]:
        """The first problem of a file by its frame and, if ``whole``, its rules."""
        frame = next((one for one in self.frames if re.fullmatch(one.names, name)), None)
        if frame is None:
            return
        try:
            parts = Parts(item, name, frame.words)
            if self._parts[0] is not item:
                self._parts = item, {}
            self._parts[1][name] = parts
            if parts.cut:
                what = f"ends before its {parts.cut} does" if parts.size_bytes else "is empty"
                yield Problem(FindingKind.TRUNCATED, f"{name} {what}: {frame.effect}")
                return
            for rule in frame.rules if whole else ():
                with self._unless_large(item):
                    wrong = rule.broken(parts)
                    if wrong and rule.kind:
                        effect = rule.effect or frame.effect
                        yield Problem(rule.kind, f"{name} {rule.says.format(wrong)}: {effect}")
                        return
                    if wrong:
                        self._note(item, rule.says.format(wrong))
        except PermissionError as error:
            detail = f"{name} cannot be read ({error.strerror}): {frame.effect}"
            yield Problem(FindingKind.UNTRUSTED, detail, "its owner can make it readable", ())
        except FormatError as error:
            folder = stat.S_ISDIR(item.seen[name].st_mode)
            detail = f"{error}, though programs may follow it"
            yield Problem(FindingKind.UNTRUSTED, detail, paths=() if folder else None)

    def linked(self, item: Files, name: str, data: bytes, fails: str) -> Iterator[Problem]:
        """The problem of a library that needs another one that is gone; ``fails`` is the consequence.

        It is only noted for a driver's, and if none of the owner's packages is found, which may bring it.
        """
        gone = interpreters.lost(Path(item.folder, name), data)
        known = any(map(interpreters.versions_of, self.links))
        missing = [one for one in gone if known and not interpreters.DRIVER.fullmatch(one)]
        if missing:
            detail = f"{name} needs {', '.join(missing)}, which is in no directory of libraries; {fails}"
            remedy = f"install it, or remove the entry, so that {self.owner} compiles it again"
            yield Problem(FindingKind.TRUNCATED, detail, remedy)
        for one in gone if not missing else ():
            self._note(item, f"{name} needs {one}, which is in no directory of libraries that is known here")

    def _note(self, item: Files, note: str) -> None:
        if self._said[0] != item.key:
            self._said = item.key, {}
        self._said[1][note] = None

    def parts(self, item: Files, name: str, frame: Frame) -> Parts:
        """The parts of a file, as ``judged`` just read them of this item, or as they are now."""
        seen, found = self._parts
        return found[name] if seen is item and name in found else Parts(item, name, frame.words)

    @contextmanager
    def _unless_large(self, item: Files) -> Iterator[None]:
        try:
            yield
        except LargeError as error:
            self._note(item, f"it was {error}")

    def tidy(self, parts: Sequence[str], levels: int) -> None:
        """Remove a directory and its parents while they are empty, up to the root or so many."""
        with suppress(OSError):  # it has other files
            for depth in range(len(parts), max(0, len(parts) - levels), -1):
                with files.open_folder(self.root, *parts[: depth - 1]) as above:
                    above.rmdir(parts[depth - 1])

    def placed(self, entry: PortableEntry, root: Path) -> Sequence[PortableFile]:
        """The files of an entry from elsewhere as the owner would have written them in a root, in order."""
        return entry.files

    def publish(self, entry: PortableEntry, move: Callable[[], bool]) -> bool:
        """Bring an entry from elsewhere into the cache with ``move``, which moves its files into place unless
        another process has them; and its row into the index. Raises HeldError, FormatError, OSError."""
        return move()

    def merge(self, item: Files, entry: PortableEntry) -> None:
        """Add to a sound entry the files it lacks of the same from elsewhere, if ``holds`` says that.

        Raises HeldError, FormatError, OSError.
        """

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        """The names of an entry in removal order: first the file that a program looks for first."""
        return sorted(names, reverse=True)

    @contextmanager
    def holding(self, *path: str, take: Callable[[int], str] | None = None, flags: int = 0) -> Iterator[None]:
        """Hold a lock that the owner takes while it writes, by the names from the root to its file; no lock
        if that is missing. ``take`` locks the open file, or says who has it; else it is taken by flock(2), as
        for a build. Raises HeldError, OSError."""
        try:
            with files.open_folder(self.root, *path[:-1]) as folder:
                fd = folder.open_file(path[-1], flags=flags)
        except FileNotFoundError:
            yield
            return
        try:
            building = f"{self.owner} is building it; try again once that is done"
            if why := take(fd) if take else "" if files.take_lock(fd, 0) else building:
                raise HeldError(why)
            yield
        finally:
            os.close(fd)

    def lock_place(self, item: Files) -> tuple[str, ...]:
        """The names of the directories from the root to the directory of an entry's lock."""
        return ()

    def summed(self, item: Files) -> int:
        """The share of an entry in the sum: its size on disk."""
        return item.size_bytes

    def _correct(self, change: int) -> None:
        try:
            with suppress(FileNotFoundError), files.open_folder(self.root) as folder:
                old = files.read_part(folder, self.sum_name, 0, _SUM_BYTES)
                if len(old) == _SUM_BYTES:
                    new = max(0, int.from_bytes(old, sys.byteorder) + change)
                    files.overwrite(
                        folder, self.sum_name, new.to_bytes(_SUM_BYTES, sys.byteorder), whole=False
                    )
        except FormatError as error:
            self._uncorrected = f"{self.root}: {error}: the sum of sizes in it is out of date"

    def stranger(self, node: Node) -> Problem:
        """The report on a stranger below the root; strangers directly in the root are reported together."""
        path, folder = printable("/".join(node.parts), None), "/".join(node.parts[:-1])
        beside_left = any(re.fullmatch(one.pattern.rpartition("/")[0], folder) for one in self.layout.left)
        return Problem(
            FindingKind.LEFTOVER,
            f"{path} is not {self.owner}'s by its name or by its content, so it stays; move it"
            if beside_left
            else f"{self.owner} does not read or remove {path}; keep it elsewhere",
        )

    def shows_left(self, start: bytes) -> bool:
        """Whether a file named like a dead writer's leftover also begins like one; an empty one does. A
        user's file may have such a name by chance."""
        return not start

    def _move_away(self, folder: Folder, name: str) -> None:
        """Move a directory into the root under a name that no owner reads; remove it if it is empty."""
        with suppress(OSError):
            folder.rmdir(name)
            return
        with files.open_folder(self.root) as top:
            names = (f"{name}{mark}.old" for mark in ("", *(f" ({number})" for number in range(1, 1000))))
            there = {found.name for found in top.entries()}
            folder.move(name, top, next(one for one in names if one not in there))

    def _beside(self, node: Node) -> Problem | None:
        """The problem of a node that is not an entry; None if there is none, or it is reported later."""
        name = node.parts[-1] if node.parts else self.root.name
        match node.role:
            case Role.FOLDER:
                why = places.distrust(node.status, move=self.place.move)
                if not why or (node.parts and why == places.distrust(self.root.stat(), move=self.place.move)):
                    return None  # or it is said of the root
                return Problem(FindingKind.UNTRUSTED, f"of the directory {name}: {why}")
            case Role.LINK:
                detail = f"{name} is a link, which {self.owner} follows and gpucache does not"
                return Problem(FindingKind.UNTRUSTED, detail, "name its own place, or remove it yourself")
            case Role.CLOSED:
                error = node.error.strerror if node.error else ""
                path = self.root.joinpath(*node.parts)
                detail = f"{path} cannot be read ({error}), so its content is not known"
                return Problem(FindingKind.UNTRUSTED, detail, "fix its permissions")
            case Role.BLOCKING:
                return self.no_file(node.status, name)
            case Role.LEFT if self._is_left(node):
                if not self._is_old(node):
                    return None
                age = format_age(self.now_ns() - node.status.st_mtime_ns)
                size = format_size(node.status.st_size)
                return Problem(FindingKind.LEFTOVER, f"left by a writer that was stopped, {size}, {age} old")
        return self.stranger(node) if len(node.parts) > 1 else None

    def _is_old(self, node: Node) -> bool:
        left, writer = self.layout.left_at(node.parts) or (None, None)
        old = left is not None and node.status.st_mtime_ns < self.now_ns() - HOUR_NS
        return old and not (writer is not None and _runs(writer))

    def _is_left(self, node: Node) -> bool:
        left, writer = self.layout.left_at(node.parts) or (None, None)
        if left is None or not stat.S_ISREG(node.status.st_mode):
            return False
        if left.sure or writer is not None:
            return True
        try:
            with files.open_folder(self.root, *node.parts[:-1]) as folder:
                start = files.read_part(folder, node.parts[-1], 0, _BEGINNING_BYTES)
        except (OSError, FormatError):
            return False
        return not start or self.shows_left(start)


def _runs(process: int) -> bool:
    """Whether a process of this number runs on this machine; False if that is unknown."""
    if sys.platform == "win32":  # on which signal 0 ends a process
        return False
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
