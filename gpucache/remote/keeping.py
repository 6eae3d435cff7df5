"""What is known of the use of a store's entries: pins, which users give, and the days of pulls.

An object ``pins/NAME`` lists the entries that an eviction leaves alone; an empty one is no pin. An object
``uses/DAY-DIGEST`` lists the entries that some pull of that day had in its caches afterwards: machines that
pull the same write one together. Its date is the store's own. Nothing is signed: who can write to a store can
remove its entries as well. Must not know records.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple, TypeVar

from gpucache.answers.transfer import Pulled, Pushed
from gpucache.caches.registry import OWN
from gpucache.errors import RemoteError
from gpucache.remote.objects import Listed, Objects, is_removable, read_sized

PINS, _USES = "pins/", "uses/"
ROWS = f"{OWN}-rows"
"""The system of rows, each a part of the entry of our own with whose key its key begins."""
_DIGITS = 32
_MOST_BYTES, _LARGEST = 256 << 20, 32 << 20
"""The bytes of pins, and then of the newest uses, that are read: of all, and of one."""
_KEPT_NS = 400 * 24 * 3600 * 10**9
T = TypeVar("T")


class Keeping(NamedTuple):
    """The pins and uses of a store."""

    pins: Mapping[str, Set[str]]
    """The marks of entries, by name of the pin."""
    used_ns: Mapping[str, int]
    """The last day of use, by mark of the entry."""
    outdated: tuple[str, ...]
    """The objects of uses that newer ones replace."""

    def pinned(self, mark: str) -> str:
        """The name of a pin that an entry has; empty if it has none."""
        return next((name for name, marks in self.pins.items() if mark in marks), "")


NOTHING_KEPT = Keeping({}, {}, ())


def mark_of(system: str, key: str) -> str:
    """The mark by which pins and uses name an entry; a row has its entry's mark."""
    system, key = (OWN, key[:64]) if system == ROWS else (system, key)
    return sha256(f"{system}\0{key}".encode("utf-8", "replace")).hexdigest()[:_DIGITS]


def without_rows(outcomes: Iterable[T]) -> Iterator[T]:
    """The outcomes of entries; a row may be lost at any time, which costs a hit some milliseconds."""
    return (one for one in outcomes if not isinstance(one, Pushed | Pulled) or one.entry.cache != ROWS)


def pin(store: Objects, name: str, marks: Iterable[str]) -> None:
    """Pin these entries by a name, in place of those that it pinned; raises RemoteError."""
    data = "\n".join(sorted(marks)).encode()
    store.replace(f"{PINS}{name}", lambda _: data)


def note_use(store: Objects, marks: Iterable[str]) -> None:
    """Note that entries were pulled today, in a store that takes it."""
    data = "\n".join(sorted(marks)).encode()
    if data and store.writes and store.served:
        with suppress(RemoteError):  # a reader may have no permission
            name = f"{_USES}{time.strftime('%Y%m%d', time.gmtime())}-{sha256(data).hexdigest()}"
            list(store.create([(name, data)]))


def read_keeping(store: Objects, known: Set[str]) -> Keeping:
    """The pins and uses of the entries with some marks; none in a store that lists nothing.

    Raises RemoteError.
    """
    listed = [one for folder in (PINS, _USES) for one in store.listed(folder)] if store.lists else []
    # The clock of one machine may be years ahead, or that of this one behind.
    now_ns = min(max((one.written_ns for one in listed), default=0), time.time_ns())
    uses: dict[str, Listed] = {one.name: one for one in listed if is_removable(one.name)}
    outdated = tuple(name for name, one in uses.items() if one.written_ns < now_ns - _KEPT_NS)
    sizes, left = dict[str, int](), _MOST_BYTES
    for one in sorted(listed, key=lambda one: (one.name in uses, -one.written_ns)):
        left -= one.size_bytes
        if left >= 0 and one.size_bytes <= _LARGEST and one.name not in outdated:
            sizes[one.name] = one.size_bytes
    pins, used_ns = dict[str, Set[str]](), dict[str, int]()
    for name, data in read_sized(store, sizes):
        marks = known & frozenset((data or b"").decode("latin-1").split())
        if name in uses:
            when_ns = min(uses[name].written_ns, now_ns)
            used_ns.update((one, max(when_ns, used_ns.get(one, 0))) for one in marks)
        elif marks:
            pins[name.removeprefix(PINS)] = marks
    return Keeping(pins, used_ns, outdated)
