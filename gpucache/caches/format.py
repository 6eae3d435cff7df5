"""The interface of a cache format: the facts and small functions that a system gives the engine.

To add a system, write a row in ``systems``, and a class below that row and ``FilesFormat`` with its facts and
``look``, ``check`` and ``payload``, which its module calls ``FORMAT``; ``cupy`` and ``jax`` beside this are
the shortest examples. The engine owns all the rest: places and their problems, scanning, races with the
owner, what may not be read, removal, repair and its marks, and the sentences that hold for every system. What
one system needs and most do not has a method here that does nothing.

A format is made anew for every cache that is opened, so that it may remember what it found there. Its class
methods are asked without a cache. Nothing found in a cache is loaded, unpickled or executed, and every length
is bounded before anything is allocated.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Location, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked, Finding
from gpucache.answers.why import Reach
from gpucache.caches import places
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Whose
from gpucache.caches.places import Places
from gpucache.errors import FormatError
from gpucache.model import BuildRequest, Toolchain

SECOND_NS = 10**9
_UNSOUND = frozenset({FindingKind.TRUNCATED, FindingKind.CORRUPT, FindingKind.MISLABELLED})
HOUR_NS = 3600 * SECOND_NS
Clock = Callable[[], int]


class Item(Protocol):
    """An entry as a scan found it: its names, sizes and times. ``Files`` is one; a row can be another."""

    @property
    def key(self) -> str:
        """Its unique identity in the cache, hex digits if possible."""
        ...

    @property
    def path(self) -> Path:
        """The name shown to people."""
        ...

    @property
    def size_bytes(self) -> int:
        """Its size on disk."""
        ...

    @property
    def written_ns(self) -> int:
        """When it was written."""
        ...

    @property
    def owned(self) -> bool:
        """Whether all of it belongs to this user."""
        ...


T = TypeVar("T", bound=Item)


@dataclass(frozen=True, slots=True)
class Look:
    """The quick description of an entry, cheap enough for a scan of a hundred thousand."""

    program: str = ""
    target: str = ""
    kind: str = ""
    """Of the artifact, as ``PayloadKind`` has it where that knows it."""
    variant: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    """Stored key fields by label; ``evict --unlike`` compares them."""
    problem: Problem | None = None
    """The problems found at a glance."""
    made_ns: int | None = None
    """When it was made; None for the time at which its first file was written."""
    compile_ns: int | None = None
    """The time to compile it; None if that is not stored."""
    used_ns: int | None = None
    """The last use as the owner keeps it; None for the time at which it was written."""
    stays: str = ""
    """Why nothing removes it, for what it holds: a clause with the remedy; empty where something may."""
    shows: bool = True
    """Whether what it holds, or that it holds nothing, shows that it is the owner's. One that does not is
    only removed or mended where its place, or another entry beside it, shows whose the cache is."""
    unique: bool = True
    """Whether no other entry can be a newer version of it, as what its key is made from is not stored."""
    indivisible: str = ""
    gone: str = ""
    """What alone reads it and is not on this machine; empty where that is not known."""
    toolchain: tuple[tuple[str, str], ...] = ()
    toolchain_identity: tuple[str, ...] = ()

    @property
    def producer(self) -> str:
        """What made it, with its version, where that and no device of this machine tells who reads it."""
        told = () if self.toolchain_identity else self.toolchain
        return " ".join(part for pair in told if all(pair) for part in pair)


class HeldError(Exception):
    """The owner's lock is held, so nothing was changed; the message is a sentence with the remedy."""


class UnjudgedError(FormatError):
    """An entry is not judged now, such as one that is being written; the message is a sentence for a note."""


class Format(Places, ABC, Generic[T]):
    """One kind of cache, whatever its entries are. Most systems keep files: see ``FilesFormat``.

    What is asked about an entry may raise OSError, and FormatError for what does not read; FileNotFoundError
    says that the owner removed the entry meanwhile. What becomes of a program that meets a damaged entry
    belongs into the detail of the problem.
    """

    item: ClassVar[type]
    """The items that ``items`` yields."""
    wanted: ClassVar[Mapping[str, str]] = {}
    """The fields that ``explain`` can be asked for. One called ``key`` is answered by the engine."""
    opaque: ClassVar[str] = ""
    """Why no miss can be explained, a clause with what to do instead, where a key's inputs are not kept."""
    asks_itself: ClassVar[bool] = False
    """Whether ``answer`` tells of unknown fields by itself, as some have other names as well, and of a cache
    that is off, as it says what would be answered otherwise."""
    absent: ClassVar[str] = (
        "no entry has this key: it was never built here, or was removed, of which no record is kept"
    )
    """What is told of a key that no entry has."""
    served: ClassVar[str] = ""
    """What is told of a key whose entry is sound, where the owner would not simply serve it."""
    key_digits: ClassVar[int] = 64
    shows: ClassVar[str] = "of its making"
    """The kind of an entry that ``shows`` its owner; completes 'nothing beside it is ...'."""
    trusts_variables: ClassVar[bool] = False
    """Whether a place that a variable names is never taken for somebody else's."""
    leaves_to_owner: ClassVar[bool] = True
    """Whether a repair leaves what belongs to another user."""
    checksums: ClassVar[bool] = False
    """Whether ``check`` compares the content with a checksum that the owner stored."""
    together: ClassVar[int] = 1
    """How many removals share one lock or commit at most, where that costs the owner's programs less."""
    mends: ClassVar[frozenset[FindingKind]] = frozenset(kind for kind in FindingKind if kind.wrong)
    """The kinds of problems that the removal of the entry mends, as the owner then makes it anew."""

    def __init__(self, location: Location, clock: Clock = time.time_ns) -> None:
        self.location = location
        self.root = Path(location.root)
        self.now_ns = clock
        self.closed_folders: dict[Path, str] = {}
        """The reasons why directories of entries could not be read so far, a sentence each."""

    # Questions without a cache.

    @classmethod
    def opened(cls, location: Location) -> Location:
        """A location with what is wrong with the place, where it does not say that yet."""
        found = location.problems or tuple(cls.at_place(Path(location.root)))
        return location._replace(problems=found)

    @classmethod
    def question(cls, request: BuildRequest, toolchain: Toolchain) -> Wanted:  # noqa: ARG003 - opaque keys
        """The question for ``explain`` that shows whether the cache would serve a build."""
        return {}

    @classmethod
    def require(cls, root: Path) -> None:
        """Raise CacheUnusableError if this cannot be a cache, such as a file in place of a directory."""
        places.require_folder(root, f"name the folder of a cache of {cls.owner}")

    @classmethod
    @abstractmethod
    def whose(cls, path: Path) -> Whose:
        """The owner of a file or directory, by its content; raises OSError, ValueError."""

    def limits(self) -> Iterator[str]:
        """What the entries show to be wrong with the owner's limits, a sentence each with the remedy."""
        yield from ()

    def not_read(self, path: Path, error: OSError) -> None:
        """Keep that a directory of entries could not be read, for those who count what is in the cache."""
        why = f"{path} cannot be read ({error.strerror}), so its contents are unknown; fix its permissions"
        self.closed_folders[path] = why

    # Entries.

    @abstractmethod
    def items(self, prefix: str) -> Iterator[T]:
        """Every entry whose key begins with some digits, one by one; raises OSError where the root does not
        read."""

    @abstractmethod
    def look(self, item: T) -> Look | None:
        """The facts of an entry from a scan, which reads little of it; None if it is not an entry."""

    @abstractmethod
    def check(self, item: T) -> Iterator[Problem]:
        """Problems of, or notes on, an entry's content; it is read whole. Or UnjudgedError."""

    @abstractmethod
    def payload(self, item: T) -> bytes:
        """The compiled bytes, checked by nobody; raises FormatError where there are none to be had."""

    def has_checksum(self, item: T) -> bool:  # noqa: ARG002 - all of them or none
        """Whether this is so for one entry, where a system has both kinds."""
        return self.checksums

    def unsound(self, item: T) -> Problem | None:
        """Why the payload is not given out; None where it is sound, wherever it lies and whosever it is."""
        return next((one for one in self.check(item) if one.kind in _UNSOUND), None)

    def bars(self, item: T) -> Problem | None:  # noqa: ARG002 - a row is always readable
        """What keeps an entry from being read at all, so that it is neither looked at nor checked."""
        return None

    def stays(self, item: T) -> str:  # noqa: ARG002 - most lay out what is an entry narrowly
        """Why nothing removes it, for its names alone: a clause with the remedy; empty where one may."""
        return ""

    def trust(self, item: T) -> Iterator[Problem]:  # noqa: ARG002 - a row is as the whole is
        """Why an entry is not trustworthy, whatever its content."""
        yield from ()

    def notes(self, item: T) -> Iterator[str]:  # noqa: ARG002 - most have none
        """What a check could not determine about an entry, a sentence each."""
        yield from ()

    def unreadable(self, error: OSError) -> Problem:
        """What is told of an entry that this user may not read."""
        detail = f"it cannot be read ({error.strerror}), neither here nor by programs of this user"
        return Problem(FindingKind.UNTRUSTED, detail)

    @abstractmethod
    def unchanged(self, item: T) -> bool:
        """Whether an entry is unchanged since the scan."""

    @abstractmethod
    def remove(self, item: T) -> Kept | None:
        """Remove an entry if it is unchanged since the scan; None once removed."""

    def filed_as(self, key: str) -> str:  # noqa: ARG002 - most file under the key itself
        """Under which digits the entry of a whole key is filed, where those are others; else empty."""
        return ""

    def finish_removals(self) -> Sequence[str]:
        """Apply the owner's rules after removals (totals, empty directories): sentences that report it."""
        return ()

    def lock(self, item: T) -> AbstractContextManager[None]:  # noqa: ARG002 - most owners have none
        """The owner's lock of what an entry lies in, held; raises HeldError where another has it, OSError."""
        return nullcontext()

    def remove_together(self, items: Sequence[T]) -> Sequence[Kept | None]:
        """Remove up to ``together`` entries like ``remove``: the outcome of each, in their order."""
        return [self.remove(item) for item in items]

    def discard(self, item: T) -> Kept | None:
        """Remove an entry that is damaged, which may be in use as well."""
        return self.remove(item)

    def take(self, item: T, paths: Sequence[str]) -> bool:  # noqa: ARG002 - most entries go as a whole
        """Remove some files of an entry as the scan saw them; whether they are gone. Raises OSError."""
        return False

    def mend(self, item: T, problems: Sequence[Problem]) -> Sequence[Problem]:
        """Mend what can be of an entry that was just found to have these: those that are gone now.

        Raises HeldError, whose sentence is added to the findings, OSError.
        """
        if any(one.paths is None and one.kind in self.mends for one in problems):
            with self.lock(item):
                kept = self.discard(item)
            if kept is not None and not kept.gone:
                raise HeldError(kept.reason)
            return problems
        return [one for one in problems if one.paths and self.take(item, one.paths)]

    # Facts of an entry besides its look.

    def report(self, item: T, entry: CacheEntry) -> EntryReport | None:  # noqa: ARG002 - most have no more
        """Everything that the entry stores about itself where that is more than its fields and its payload: a
        log, headers, variants. Raises FormatError, OSError."""
        return None

    def inputs(self, item: T, entry: CacheEntry) -> Iterable[tuple[str, str]]:  # noqa: ARG002 - as opaque
        """What a report has of the key beside the fields, by label, and which inputs are not stored."""
        return (("inputs of the key", f"not stored by {self.owner}"),) if self.opaque else ()

    def answer(self, wanted: Wanted) -> Iterator[Reach] | None:  # noqa: ARG002 - most keep no inputs
        """Where entries keep enough of what they were made from: one answer for each thing asked for, by
        fields of ``wanted`` alone. Raises UsageError."""
        return None

    # Everything that belongs to no entry.

    def whole(self) -> Iterator[Checked]:
        """What is wrong with the whole (totals, an index, a lock, a database), by the path it is about, and
        notes; raises OSError."""
        yield from ()

    def closed(self) -> str:
        """Why the content of the place is unknown, a sentence; empty if it can be known."""
        return places.closed(self.root, move=self.place.move)

    def is_foreign(self) -> bool:
        """Whether the place is somebody else's, so that nothing in it is looked at. Raises nothing."""
        named = self.location.decided_by == "--cache" or not self.trusts_variables
        with suppress(OSError, ValueError):
            return named and self.whose(self.root) is Whose.FOREIGN
        return False

    def beside(self) -> Iterator[Checked]:
        """Everything in the cache that belongs to no entry; raises OSError if the root cannot be read."""
        yield from ()

    def clear(self, checked: Checked) -> Checked:
        """Remove the problems from ``beside`` or ``whole``, if possible; the same ones, marked."""
        return checked

    def told(self, path: Path, problem: Problem, name: str = "", program: str = "") -> Checked:
        """A problem of what belongs to no entry, as ``beside`` and ``whole`` give it; by its file's name."""
        finding = Finding.of(problem, self.name, name or path.name, program)
        return Checked(str(path), (finding,), counts=False)
