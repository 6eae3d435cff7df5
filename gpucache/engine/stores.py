"""The stores a lookup goes through, nearest first: memory, the user's root, system roots.

Owns their order and why one is missing. Must not know concrete stores: assembly puts them in.

Also writes the lines of the journal (every miss with its verdict, and each process's hits and misses) and of
the histories.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpucache.answers.lookup import Hit, Miss
from gpucache.engine.prepare import Prepared
from gpucache.errors import CacheUnusableError
from gpucache.model import CacheKey, Entry, EntryDetail, Program
from gpucache.store.interface import Damaged, Found

if TYPE_CHECKING:
    from pathlib import Path

    from gpucache.engine.explain import Record
    from gpucache.store.directory import DirectoryStore
    from gpucache.store.interface import Event, RefusedRoot
    from gpucache.store.memory import MemoryStore


class NoEntry(NamedTuple):
    """No store has a usable entry; the damaged, unread and incomplete ones are listed."""

    damaged: tuple[Damaged, ...] = ()
    unread: "tuple[tuple[DirectoryStore, CacheKey, str], ...]" = ()
    """The stores that could not be queried, each with the key and the reason."""
    incomplete: Hit | None = None
    """An entry that was not compiled for all the local sizes of the request."""


class Remote(Protocol):
    """A store on another machine, bounded in time. Raises nothing."""

    @property
    def writes(self) -> bool:
        """Whether it takes the builds of this machine."""

    @property
    def queried(self) -> str:
        """The URL of the store, if it is queried; else empty."""

    def find(self, wanted: Sequence[Sequence[CacheKey]]) -> Sequence[tuple[Entry, bytes] | None]:
        """For each request the verified entry of the first of its keys that the store has, with its file."""

    def send(self, entry: Entry) -> None:
        """Send an entry of this machine, without waiting for it."""

    def flush(self, limit_s: float | None = None) -> None:
        """Wait until everything is sent or given up, or for so many seconds."""

    def warn(self, sentence: str) -> None:
        """Show the user a sentence, once."""


class Stores(NamedTuple):
    """Where a key is looked up, and where a new entry is published."""

    memory: "MemoryStore | None" = None
    user: "DirectoryStore | None" = None
    systems: "tuple[DirectoryStore, ...]" = ()
    unasked: "Callable[[], Sequence[DirectoryStore]]" = tuple
    """Roots of this user that the settings leave out: looked at only to explain a miss."""
    recorded: "Callable[[DirectoryStore, Program], Record] | None" = None
    """Reads the record of a program; a run that needs each one many times has it cached."""
    origin: str = ""
    """The option or variable that names the user's root; empty for the default."""
    command: str = ""
    disabled: bool = False
    read_only: bool = False
    """Whether nothing is stored, not even the use of an entry."""
    asks: bool = False
    """Whether the server of ``gpucache run`` sees the compiles, locks their keys and writes misses down."""
    require: bool = False
    learn: bool = False
    """Whether the misses that a program notes are built after its end."""
    trim: Callable[[], object] | None = None
    """Called after publishing to keep the cache under its bound; None if it has none."""
    unusable: str = ""
    """Why there is no user's root, in one sentence; empty if there is one."""
    remote: Callable[[], Remote] | None = None
    """Opens the store that is queried after all roots miss; None if there is none, or it is left out."""
    refused: "tuple[RefusedRoot, ...]" = ()
    """System roots that the settings name and that cannot be read."""

    def find(self, keys: Iterable[CacheKey]) -> Hit | NoEntry:
        """The first sound entry under any of some keys."""
        damaged: list[Damaged] = []
        unread: list[tuple[DirectoryStore, CacheKey, str]] = []
        for key in keys:
            remembered = self.memory.get(key) if self.memory is not None else None
            if isinstance(remembered, Found):
                return Hit(key, remembered.head, remembered.payload, "memory", remembered.log)
            for store in self.on_disk():
                answer = store.get(key, use=not self.read_only)
                if isinstance(answer, Found):
                    if self.memory is not None:
                        self.memory.publish(Entry(key, answer.head, EntryDetail(()), answer.payload))
                    return Hit(key, answer.head, answer.payload, str(answer.root))
                if isinstance(answer, Damaged):
                    damaged.append(answer)
                elif answer.reason:
                    unread.append((store, key, answer.reason))
        return NoEntry(tuple(damaged), tuple(unread))

    def keep_in_memory(self, entry: Entry) -> None:
        if self.memory is not None:
            self.memory.publish(entry)

    def on_disk(self) -> "Iterator[DirectoryStore]":
        if self.user is not None:
            yield self.user
        yield from self.systems

    @property
    def not_asked(self) -> tuple[tuple[str, str], ...]:
        """Every root that the settings name and that cannot be queried, with a sentence on the reason."""
        own = (("the user's own", self.unusable),) if self.unusable else ()
        return (*own, *((str(one.root), str(one)) for one in self.refused))

    @property
    def target(self) -> "DirectoryStore | None":
        """The store a new entry is published to; None if nothing can be kept."""
        writable = self.user is not None and self.user.writable and not (self.read_only or self.disabled)
        return self.user if writable else None

    @property
    def keeps(self) -> bool:
        return self.target is not None

    def recall(self, name: str) -> bytes | None:
        """The bytes that the first root has stored under a name; None if no root has any."""
        if self.disabled:
            return None
        found = (store.recall(name) for store in self.on_disk())
        return next((data for data in found if data is not None), None)

    def remember(self, name: str, data: bytes) -> None:
        """Remember something in the store to which new entries are published."""
        if self.target is not None:
            self.target.remember(name, data)


def note_miss(stores: Stores, prepared: Prepared, miss: Miss, *, noted: bool = False) -> None:
    """Write a miss down; ``noted`` says that ``warm --misses`` can build it."""
    request = prepared.request
    write_miss(stores, request.program.name, str(request.target), prepared.key, miss, noted=noted)


def note_failure(stores: Stores, prepared: Prepared, miss: Miss) -> Miss:
    """Record that a program that missed does not compile; returns the miss with that reason."""
    failed = miss.failed()
    note_miss(stores, prepared, failed)
    record_failure(stores, prepared)
    return failed


def record_failure(stores: Stores, prepared: Prepared) -> None:
    """Record in the program's history that it does not compile, unless that is the last known of this key."""
    from gpucache.store.interface import FAILED, Event

    store, key, request = stores.target, str(prepared.key), prepared.request
    if store is not None:
        known = [event.what for event in store.history.events(request.program.name) if event.key == key]
        if known[-1:] != [FAILED]:
            _record(store, request.program, Event(time.time_ns(), FAILED, key, str(request.target)))


def record_build(
    store: "DirectoryStore", program: Program, *entries: Entry | Hit, what: str = "built"
) -> None:
    """Record builds in the program's history, and once in the histories of aliases that lead to it."""
    from gpucache.store.interface import Event  # which no hit needs

    found = [(one.head.created_ns if what == "built" else time.time_ns(), one) for one in entries]
    events = (
        Event(when_ns, what, str(one.key), one.head.target, options=one.head.options)
        for when_ns, one in found
    )
    _record(store, program, *events)


def _record(store: "DirectoryStore", program: Program, *events: "Event") -> None:
    from gpucache.engine.prepare import Identity  # which no hit needs

    known, history = Identity.of(program), store.history
    named = [
        one
        for one, name in known.aliases.items()
        if name != known.name and not history.is_led(one, known.name)
    ]
    leading = events[0]._replace(what="named", key="", target="", why=known.name, options=None)
    own = [event._replace(source=known.mark) for event in events]
    history.record_all([(known.name, own), *((alias, [leading]) for alias in named)])


def not_kept(root: "Path", error: OSError | CacheUnusableError) -> str:
    """Why nothing was kept, in a sentence that names no program."""
    from gpucache.host import os_errors  # which no hit needs

    if isinstance(error, CacheUnusableError):
        return f"nothing could be kept: {error}"
    return f"nothing could be kept in {root}: {os_errors.reason(error)}; {os_errors.remedy(error)}"


def note_process(stores: Stores, hits: int, misses: int, saved_ns: int) -> None:
    """Write down the hits and misses of a process at its end, and how long compiling its hits took."""
    if stores.target is not None:
        stores.target.journal(
            {
                "kind": "process",
                "when_ns": time.time_ns(),
                "command": stores.command,
                "pid": os.getpid(),
                "hits": hits,
                "misses": misses,
                "saved_ns": saved_ns,
            }
        )


def write_miss(
    stores: Stores, program: str, target: str, key: CacheKey, miss: Miss, *, noted: bool = False
) -> None:
    if stores.target is not None and not stores.asks:
        record = miss_record(stores, program, target, key, miss, time.time_ns())
        stores.target.journal(record | {"noted": noted})


def miss_record(
    stores: Stores, program: str, target: str, key: CacheKey, miss: Miss, now_ns: int
) -> dict[str, object]:
    return {
        "kind": "miss",
        "when_ns": now_ns,
        "program": program,
        "target": target,
        "key": str(key),
        "verdict": miss.verdict.value,
        "detail": miss.detail,
        "differences": [
            {"label": item.label, "left": item.left, "right": item.right} for item in miss.differences[:8]
        ],
        "command": stores.command,
        "pid": os.getpid(),
    }
