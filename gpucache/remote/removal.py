"""Removal of objects in two steps, so that no process loses one on which it relies.

A *mark* is an object that lists the names of objects that go. They are removed by a later run that finds the
mark at least an hour old, by the store's own dates, and that alone took it. Meanwhile no push counts marked
objects as present: a push writes them anew, and takes what it sent out of young marks before it reports
anything. Only a store that a push has signed as one of gpucache loses objects. Must not know which names
records have.
"""

import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import NamedTuple
from uuid import uuid4

from gpucache.errors import RemoteError
from gpucache.remote.objects import Objects, batches, is_removable, read_sized

SIGN, SIGN_TEXT = "gpucache-store", b"gpucache store 1\n"
"""The object that every push writes, and its bytes."""
FOLDER = "marks/"
_TAKEN = "-taken"
_HOUR_NS = 3600 * 10**9
_YOUNG_NS, _YOUNG_S = 50 * 60 * 10**9, 5 * 60
"""Until when objects may be taken out of a mark, and how long that may take; no run acts on it then."""
_TURN_S = 30 * 60
"""How long a run acts on a mark that it took; another one takes it after an hour."""
_MOST_NAMES = 100_000
_MOST_BYTES = 16 << 20
_TRIES = 10


class _Mark(NamedTuple):
    written_ns: int
    names: frozenset[str]


class Marks(NamedTuple):
    """The marks of a store by their names; for one that lists nothing there are none."""

    marks: Mapping[str, _Mark]
    taken: Mapping[str, int]
    """When a run took one, by its name."""

    @property
    def names(self) -> frozenset[str]:
        """All marked objects."""
        return frozenset().union(*(one.names for one in self.marks.values()))


def read_marks(store: Objects) -> Marks:
    """The marks of a store; raises RemoteError."""
    if not store.lists:
        return Marks({}, {})
    found = {one.name: one for one in store.listed(FOLDER) if is_removable(one.name)}
    taken = {name.removesuffix(_TAKEN): one.written_ns for name, one in found.items() if _TAKEN in name}
    sizes = {name: min(one.size_bytes, _MOST_BYTES) for name, one in found.items() if _TAKEN not in name}
    marks = {
        name: _Mark(found[name].written_ns, frozenset(filter(is_removable, data.decode("latin-1").split())))
        for name, data in read_sized(store, sizes)
        if data is not None
    }
    return Marks(marks, taken)


def sign(store: Objects) -> None:
    """Sign a store as one of gpucache; raises RemoteError."""
    list(store.create([(SIGN, SIGN_TEXT)]))


def mark(store: Objects, names: Iterable[str]) -> None:
    """Mark objects for removal; raises RemoteError for a store that no push has signed."""
    [(_, sign)] = store.read([SIGN], len(SIGN_TEXT))
    if sign != SIGN_TEXT:
        raise RemoteError(
            f"{store.url} lacks the object {SIGN}, so nothing is removed there; push to it first, if it is a "
            "store of gpucache"
        )
    for group in batches(sorted(names), _MOST_NAMES):
        _write(store, group)


def withdraw(store: Objects, names: Collection[str]) -> frozenset[str]:
    """Take names out of all marks; returns those that are in old ones, which a run may act on already."""
    ours = frozenset(names)
    lost: frozenset[str] = frozenset()
    for _ in range(_TRIES):
        began = time.monotonic()
        touched = {name: one for name, one in read_marks(store).marks.items() if one.names & ours - lost}
        if not touched:
            return lost
        now_ns = _write(store, frozenset().union(*(one.names for one in touched.values())) - ours)
        young = {name for name, one in touched.items() if now_ns - one.written_ns < _YOUNG_NS}
        store.remove(sorted(young))
        slow = time.monotonic() - began > _YOUNG_S
        lost |= frozenset().union(
            *(one.names & ours for name, one in touched.items() if slow or name not in young)
        )
    return ours


def sweep(store: Objects, named: Callable[[], Container[str]]) -> bool:
    """Remove the objects of marks that are an hour old, unless they are ``named`` by now; whether there were
    marks.

    ``named`` is called for each mark after it was taken. Raises RemoteError.
    """
    found = read_marks(store)
    if not found.marks:
        return False
    now_ns = _write(store, ())
    for name, one in found.marks.items():
        taken_ns = found.taken.get(name)
        if now_ns - one.written_ns < _HOUR_NS or (taken_ns and now_ns - taken_ns < _HOUR_NS):
            continue
        if taken_ns:  # by a run that was killed; its successor waits as for a new mark
            _write(store, one.names)
            store.remove([name, name + _TAKEN])
            continue
        [(_, mine)] = store.create([(name + _TAKEN, b"")])
        if mine:
            until, keep = time.monotonic() + _TURN_S, named()
            for group in batches((each for each in sorted(one.names) if each not in keep), 1000):
                if time.monotonic() > until:
                    return True
                store.remove(group)
            store.remove([name, name + _TAKEN])
    return True


def _write(store: Objects, names: Collection[str]) -> int:
    """Write a new mark, which stays if it has names; returns its date by the store."""
    name = f"{FOLDER}{uuid4().hex}"
    list(store.create([(name, "\n".join(sorted(names)).encode())]))
    written_ns = next((one.written_ns for one in store.listed(FOLDER) if one.name == name), 0)
    if not names:
        store.remove([name])
    return written_ns
