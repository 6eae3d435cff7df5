"""The interface of a cache format: the facts and small functions that a system gives the engine.

To add a system, write a row in ``systems``, and a class ``of`` that row, named in ``registry``, that inherits
``FilesFormat`` and has its facts and ``look``, ``check`` and ``payload``; ``cupy`` and ``jax`` are
the shortest examples. The engine owns the rest: places and their problems, scanning, races with the owner,
unreadable entries, removal, repair and its marks, and the sentences common to all systems. Rare needs of
single systems have methods in this class that do nothing by default.

Every opened cache gets a new format object, which may remember its findings. Its class methods work without a
cache. Nothing found in a cache is loaded, unpickled or executed, and every length is bounded before anything
is allocated.

A miss is explained by the nearest stored entry. A format provides the fields ``asked`` for and the values
that each item has ``stored`` in them. The nearest item has the lightest differing fields; of equally light
ones it is the one with more similar values, and then the first. Must not know any system.
"""

import re
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from gpucache.answers.entries import CacheEntry, FindingKind, Location, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked, Finding
from gpucache.answers.why import Reach, Served
from gpucache.caches import places
from gpucache.caches.files import LargeError
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Whose
from gpucache.caches.places import Places
from gpucache.caches.portable import Fact, Moving, PortableFile, Start
from gpucache.caches.systems import PLACES
from gpucache.errors import FormatError, UsageError
from gpucache.keys import Difference
from gpucache.model import BuildRequest, Toolchain
from gpucache.payload import describe
from gpucache.units import format_size, printable

N = TypeVar("N")
Fields = Mapping[str, Any]
"""Values by label; two entries differ in a field where the values are unequal."""
_COMPARED_CHARS = 300
_TEXTS_COMPARED = 5000
_NAMED, _SHORT = 4, 200


@dataclass(frozen=True, slots=True)
class Field:
    """The weight of a difference in a field."""

    weight: int = 1
    alike: Callable[[Any, Any], float] | None = None
    """The similarity of a stored and a requested value, from 0 to 1; None if they have nothing in common."""
    least: float = 0.0
    """The least similarity for the entry to be near at all."""


@dataclass(frozen=True, slots=True)
class Near(Generic[N]):
    """The item that would be found, or the nearest one."""

    item: N
    stored: Fields
    differing: tuple[str, ...]
    """The labels of the fields in which the item differs from the request; empty if it has all."""
    wrong: Problem | None = None
    """The reason why an item with all requested fields is not served."""

    def differences(self, asked: Fields) -> tuple[Difference, ...]:
        """The differing fields, whose values must be texts; only the first differing line of long ones."""
        return tuple(_difference(label, self.stored.get(label), asked[label]) for label in self.differing)


def _difference(label: str, stored: str | None, asked: str) -> Difference:
    if "\n" not in (stored or "") + asked:
        return Difference(label, stored, asked)
    left, right = (stored or "").splitlines(), asked.splitlines()
    pairs = enumerate(zip(left, right, strict=False))
    number = next((index for index, (one, other) in pairs if one != other), min(len(left), len(right)))
    one, other = (printable(lines[number]) if number < len(lines) else None for lines in (left, right))
    return Difference(f"{label}, line {number + 1}", one, other)


def nearest(
    items: Iterable[N],
    asked: Fields,
    stored: Callable[[N], Fields],
    known: Mapping[str, Field],
    wrong: Callable[[N], Problem | None] = lambda _: None,
) -> Near[N] | None:
    """The first sound item with all requested fields, else an unsound one, else the nearest.

    None if nothing is near. ``known`` has the fields that count differently from ``Field()``. An item whose
    ``stored`` raises FormatError or OSError is skipped.
    """
    for field in known.values():
        if isinstance(field.alike, TextsAlike):
            field.alike.begin()
    best: Near[N] | None = None
    spoiled: Near[N] | None = None
    least: tuple[float, float] | None = None
    for item in items:
        try:
            fields = stored(item)
        except (OSError, FormatError):
            continue
        differing = tuple(label for label, value in asked.items() if fields.get(label) != value)
        if not differing:
            problem = wrong(item)
            if problem is None:
                return Near(item, fields, ())
            spoiled = spoiled or Near(item, fields, (), problem)
            continue
        rank = None if spoiled else _rank(fields, asked, differing, known)
        if rank is not None and (least is None or rank < least):
            best, least = Near(item, fields, differing), rank
    return spoiled or best


def _rank(
    stored: Fields, asked: Fields, differing: Iterable[str], known: Mapping[str, Field]
) -> tuple[float, float] | None:
    """The distance of an item from the request; None if it is not near."""
    weight = unlike = 0.0
    for label in differing:
        field = known.get(label, Field())
        alike = field.alike(stored.get(label), asked[label]) if field.alike else 0.0
        if alike < field.least:
            return None
        weight += field.weight
        unlike += field.weight * (1 - alike)
    return weight, unlike


class TextsAlike:
    """The similarity of two texts; only a limited number of pairs are compared, as that takes time."""

    def __init__(self, least: float = 0.0) -> None:
        self._matcher = SequenceMatcher(autojunk=False)
        self._least = least
        self.begin()

    def begin(self) -> None:
        self._left = _TEXTS_COMPARED

    def __call__(self, stored: str, asked: str) -> float:
        """The similarity from 0 to 1; 0 below the minimum and after the last permitted comparison."""
        self._left -= 1
        if self._left < 0:
            return 0.0
        self._matcher.set_seq2(asked[:_COMPARED_CHARS])
        self._matcher.set_seq1(stored[:_COMPARED_CHARS])
        bounds = (self._matcher.real_quick_ratio, self._matcher.quick_ratio)
        return 0.0 if any(bound() < self._least for bound in bounds) else self._matcher.ratio()


def once(wanted: Wanted, name: str) -> bytes | None:
    """The only value of a requested field, or None; raises UsageError for several values."""
    values = wanted.get(name, ())
    if len(values) > 1:
        raise UsageError(f"the field {name!r} is given {len(values)} times; give it once")
    return values[0] if values else None


def compared(made: "Format[Any]", asked: Mapping[str, str]) -> Reach:
    """The answer of a cache to requested values: whether an entry has all of them and programs find it."""
    words = ", ".join(f"{label} {_short(value)}" for label, value in asked.items())

    def stored(entry: CacheEntry) -> Fields:
        told = made.stored(entry, asked)
        return {
            label: asked.get(label)
            if values is None or asked.get(label) in values
            else ", ".join(values[:_NAMED])
            for label, values in told.items()
        }

    if closed := made.closed():
        return Reach(made.name, words, Verdict.NOT_CONSULTED, closed)
    broken: list[CacheEntry] = []
    near = nearest(_looks(made, broken), asked, stored, made.compared, made.hinders)
    verdict: Verdict | Served
    if near is None and broken:
        detail = f"no sound entry is like it, but {len(broken)} cannot be read; {repair(made.location)}"
        return Reach(made.name, words, Verdict.CORRUPT, detail, nearest=broken[0].key)
    if near is None:
        detail = (
            "the cache has no entry like it: it was never built, or was removed; run the program to make one"
        )
        return Reach(made.name, words, Verdict.NEVER_BUILT, detail)
    key = near.item.key
    if near.differing:
        lacking = ", ".join(made.unstored if label == "key" else label for label in near.differing)
        verdict = Verdict.KEY_CHANGED
        detail = f"no entry has all of it; the nearest, {key[:12]}, differs in {lacking}"
    elif wrong := near.wrong:
        verdict = {
            FindingKind.LOCKED: Verdict.NOT_CONSULTED,
            FindingKind.STALE: Verdict.KEY_CHANGED,
            FindingKind.MISLABELLED: Served.FALSE_HIT if made.serves_others else Verdict.CORRUPT,
        }.get(wrong.kind or FindingKind.CORRUPT, Verdict.CORRUPT)
        detail = f"it is present, but {wrong.detail}; {wrong.remedy or repair(made.location)}"
    else:
        rest = ", ".join(label for label in made.compared if label not in asked)
        missing = made.decides and made.decides not in asked
        verdict = Verdict.NOT_RECORDED if missing else Served.HIT
        told = f"; not compared: {rest}" if rest else ""
        more = f"; {made.served}" if made.served else ""
        gets = f", and {made.decides} decides" if missing else " and programs get to it"
        detail = f"{key[:12]} has all of it{gets}{told}{more}"
    return Reach(made.name, words, verdict, detail, near.differences(asked), key)


def _short(value: str) -> str:
    """A value, short enough for a sentence."""
    return value if len(value) <= _SHORT and "\n" not in value else f"of {format_size(len(value))}"


def repair(location: Location) -> str:
    """The command that repairs a cache, with its place if no variable leads to it."""
    by_hand = location.decided_by == "--cache"
    name = shlex.quote(f"{location.cache}:{location.root}") if by_hand else location.cache
    command = f"gpucache verify --repair --cache {name}"
    return f"run {command}" if "'" in name else f"run '{command}'"


def _looks(made: "Format[Any]", broken: list[CacheEntry]) -> Iterator[CacheEntry]:
    """The entries of a cache as a scan sees them, none if it cannot be read; damaged ones that have no fields
    are put into a list."""
    with suppress(OSError):
        for item in made.items(""):
            with suppress(OSError, FormatError):
                if (entry := made.look(item)) is not None and entry.fields:
                    yield entry
                elif entry is not None and entry.damage:
                    broken.append(entry)


SECOND_NS = 10**9
_UNSOUND = frozenset({FindingKind.TRUNCATED, FindingKind.CORRUPT, FindingKind.MISLABELLED})
HOUR_NS = 3600 * SECOND_NS
_EXACT = re.compile(r"\d+\.\d+\.\d+[\w.+]*\Z", re.ASCII)
"""A text that is one version, as some entries record a range of versions."""
_CUDA = re.compile(r"(sm|compute)_(\d+)([af]?)\Z", re.ASCII)
Clock = Callable[[], int]
Check = Callable[["Format[Any]", Any], Problem | None]
"""The problems of an entry of a format, after all checks of it."""


class Item(Protocol):
    """An entry as a scan found it: its names, sizes and times. ``Files`` is one; a row can be another."""

    @property
    def key(self) -> str:
        """The identity of the entry, unique in its cache; hex digits if possible."""

    @property
    def path(self) -> Path:
        """The name shown to people."""

    @property
    def size_bytes(self) -> int:
        """Its size on disk."""

    @property
    def written_ns(self) -> int:
        """When it was written."""

    @property
    def used_ns(self) -> int:
        """When it was last read or written, as far as that is known."""

    @property
    def owned(self) -> bool:
        """Whether all of it belongs to this user."""


T = TypeVar("T", bound=Item)


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


class Format(Places, ABC, Generic[T]):
    """One kind of cache, with entries of any type. Most systems keep files: see ``FilesFormat``.

    Methods about an entry may raise OSError, and FormatError for one that is not valid; FileNotFoundError
    means that the owner removed the entry meanwhile. The effect of a damaged entry on a program belongs in
    the detail of the problem.
    """

    item: ClassVar[type]
    wanted: ClassVar[Mapping[str, str]] = {}
    """The fields that ``explain`` accepts. The engine handles a field named ``key``."""
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
    @abstractmethod
    def whose(cls, path: Path) -> Whose:
        """The owner of a file or directory, by its content; raises OSError, ValueError."""

    # Entries.

    @abstractmethod
    def items(self, prefix: str) -> Iterator[T]:
        """Every entry whose key begins with some digits, one by one; raises OSError if the root cannot be
        read."""

    def entry(self, item: T) -> CacheEntry:
        """The facts of an entry from its names, sizes and times."""
        return CacheEntry(
            self.name,
            item.key,
            str(item.path),
            item.size_bytes,
            item.written_ns,
            item.used_ns,
            unique=True,
            stays=self.stays(item),
            handle=item,
        )

    @abstractmethod
    def look(self, item: T) -> CacheEntry | None:
        """Complete a scanned entry from the beginning of its content; None if it is not an entry."""

    @abstractmethod
    def check(self, item: T) -> Iterator[Problem]:
        """Problems of, or notes on, an entry's content; it is read whole. Or UnjudgedError."""

    @abstractmethod
    def payload(self, item: T) -> bytes:
        """The compiled bytes, unchecked; raises FormatError if there are none."""

    def has_checksum(self, item: T) -> bool:
        """Whether one entry has a checksum, if a system has both kinds."""
        return self.checksums

    def unsound(self, item: T) -> Problem | None:
        """Why the payload cannot be returned; None if it is sound."""
        return next((one for one in self.check(item) if one.kind in _UNSOUND), None)

    def bars(self, item: T) -> Problem | None:
        """The reason an entry cannot be read at all, so that it is neither identified nor checked."""
        return None

    def stays(self, item: T) -> str:
        """Why an entry must not be removed, judged by its names: a clause with the remedy; else empty."""
        return ""

    def trust(self, item: T) -> Iterator[Problem]:
        yield from ()

    def notes(self, item: T) -> Iterator[str]:
        """Facts that a check of an entry could not determine, a sentence each."""
        yield from ()

    @abstractmethod
    def unchanged(self, item: T) -> bool:
        """Whether an entry is unchanged since the scan."""

    @abstractmethod
    def remove(self, item: T) -> Kept | None:
        """Remove an entry if it is unchanged since the scan; None once removed."""

    def filed_as(self, key: str) -> str:
        """The digits by which the entry of a full key is stored, if they differ from the key; else empty."""
        return ""

    def finish_removals(self) -> Sequence[str]:
        """Apply the owner's rules after removals (totals, empty directories): sentences that report it."""
        return ()

    def lock(self, item: T) -> AbstractContextManager[None]:
        """Hold the owner's lock of an entry's place; raises HeldError if another process has it; OSError."""
        return nullcontext()

    def remove_together(self, items: Sequence[T]) -> Sequence[Kept | None]:
        """Remove up to ``together`` entries like ``remove``: the outcome of each, in their order."""
        return [self.remove(item) for item in items]

    def strip(self, item: T) -> bool:
        """Remove the ``spare_bytes``; whether all of them are gone. Raises OSError, FormatError."""
        return False

    def discard(self, item: T) -> Kept | None:
        """Remove an entry that is damaged, which may be in use as well."""
        return self.remove(item)

    def take(self, item: T, paths: Sequence[str]) -> bool:
        """Remove some files of an entry as the scan saw them; whether they are gone. Raises OSError."""
        return False

    def fix(self, item: T, problems: Sequence[Problem]) -> Sequence[Problem]:
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

    def facts(self, item: T, look: CacheEntry) -> Iterator[tuple[str, str]]:
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
        from gpucache.caches import interpreters  # only pull needs it

        known: dict[str, frozenset[str]] = {Fact.PLACE: frozenset({str(self.root)})}
        if self.distribution:
            known[Fact.VERSION] = interpreters.versions_of(self.distribution)
            known[Fact.PATH] = interpreters.places_of(self.distribution)
            known[Fact.PYTHON] = interpreters.versions()
        return {label: values for label, values in known.items() if values}

    def files_to_move(self, item: T) -> Sequence[PortableFile]:
        """The files of a sound entry in their portable form, in the order in which the owner publishes them;
        raises FormatError if this entry cannot move, OSError."""
        raise FormatError(self.moving.why_not)

    def holds(self, item: T, names: Collection[str]) -> bool:
        """Whether a sound entry here has all files of the same from elsewhere, of these portable names; one
        that does not is merged with it. Raises FormatError, OSError."""
        return True

    def restoring(self, check: Check) -> AbstractContextManager[Start]:
        """Writes entries that came from elsewhere; ``check`` judges an entry of any format.

        Both functions raise FormatError for one that is not sound, HeldError, OSError.
        """
        raise FormatError(self.moving.why_not)

    # Facts of an entry besides its look.

    def log(self, item: T) -> str:
        """The compiler's log of an entry, if it has one. Raises FormatError, OSError."""
        return ""

    def content(self, item: T, entry: CacheEntry) -> Iterable[tuple[str, str]]:
        try:
            return describe(self.payload(item)).pairs
        except LargeError as error:
            return (("binary", str(error)),)

    def inputs(self, item: T, entry: CacheEntry) -> Iterable[tuple[str, str]]:
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
        return next((one for one in self.check(cast("T", entry.handle)) if one.kind and one.kind.wrong), None)

    # Everything that belongs to no entry.

    def whole(self) -> Iterator[Checked]:
        """Problems of the cache as a whole (totals, an index, a lock, a database), by their path, and notes;
        raises OSError."""
        yield from ()

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
        yield from ()

    def clear(self, checked: Checked) -> Checked:
        """Remove the problems from ``beside`` or ``whole``, if possible; returns them, marked."""
        return checked

    def told(self, path: Path, problem: Problem, name: str = "", program: str = "") -> Checked:
        """A problem outside of entries, as ``beside`` and ``whole`` return it; by its file's name."""
        finding = Finding.of(problem, self.name, name or path.name, program)
        return Checked(str(path), (finding,), counts=False)
