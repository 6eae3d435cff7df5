"""Removal of objects in two steps, so that no process loses one on which it relies.

A *mark* is an object that lists the names of objects that go. They are removed by a later run that finds the
mark at least an hour old, by the store's own dates. Meanwhile no push counts marked objects as present: a
push writes them anew, and takes what it sent out of young marks before it reports anything. A run that
removes first writes a mark of its own that is never young, and only then asks which names are needed: so of
several runs at once none removes what a push has reported, however late one of them is. Only a store that a
push has signed as one of gpucache loses objects. Must not know which names records have.
"""

import os
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import NamedTuple

from gpucache.errors import RemoteError
from gpucache.remote.objects import Objects, batches, is_removable, read_sized

SIGN, SIGN_TEXT = "gpucache-store", b"gpucache store 1\n"
"""The object that everybody who sends writes, and its bytes."""
FOLDER = "marks/"
_TAKEN = "-taken"
_HOUR_NS = 3600 * 10**9
_YOUNG_NS, _YOUNG_S = 50 * 60 * 10**9, 5 * 60
"""The age up to which objects may be taken out of a mark, while no run acts on it, and the time for that."""
_TURN_S = 30 * 60
"""How long a run may act on a mark; an hour later another run may take over."""
_MOST_NAMES = 100_000
_MOST_BYTES, _MOST_TOGETHER = 16 << 20, 128 << 20
_TRIES = 10


class Mark(NamedTuple):
    """A mark of a store."""

    written_ns: int
    names: frozenset[str]
    """The objects that go."""


def read_marks(store: Objects) -> dict[str, Mark]:
    """The marks of a store by their names, none for one that lists nothing; raises RemoteError."""
    listed = store.listed(FOLDER) if store.lists else ()
    found = {one.name: one for one in listed if is_removable(one.name)}
    sizes = {name: min(one.size_bytes, _MOST_BYTES) for name, one in found.items()}
    if sum(sizes.values()) > _MOST_TOGETHER:
        raise RemoteError(f"{store.url} has more than 128 MiB of marks for removal; remove some of {FOLDER}")
    return {
        name: Mark(found[name].written_ns, frozenset(filter(is_removable, data.decode("latin-1").split())))
        for name, data in read_sized(store, sizes)
        if data is not None
    }


def marked(marks: Mapping[str, Mark]) -> frozenset[str]:
    return frozenset().union(*(one.names for one in marks.values()))


def sign(store: Objects) -> None:
    """Sign a store as one of gpucache; raises RemoteError."""
    list(store.create([(SIGN, SIGN_TEXT)]))


def is_signed(store: Objects) -> bool:
    """Whether anything was ever sent to a store; raises RemoteError if it cannot be read."""
    return dict(store.read([SIGN], len(SIGN_TEXT)))[SIGN] == SIGN_TEXT


def mark(store: Objects, names: Iterable[str]) -> None:
    """Mark objects for removal; raises RemoteError for a store that no push has signed."""
    if not is_signed(store):
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
        touched = {name: one for name, one in read_marks(store).items() if one.names & ours - lost}
        if not touched:
            return lost
        now_ns = _write(store, marked(touched) - ours)
        young = {
            name
            for name, one in touched.items()
            if now_ns - one.written_ns < _YOUNG_NS and not name.endswith(_TAKEN)
        }
        store.remove(sorted(young))
        slow = time.monotonic() - began > _YOUNG_S
        lost |= ours & marked({name: one for name, one in touched.items() if slow or name not in young})
    return ours


def sweep(store: Objects, named: Callable[[], Container[str]]) -> bool:
    """Remove the objects of marks that are an hour old, unless they are ``named`` by now; whether there were
    marks.

    ``named`` is called for each such mark. Raises RemoteError.
    """
    found = read_marks(store)
    now_ns = _write(store, ()) if found else 0
    for name, one in found.items():
        if now_ns - one.written_ns < _HOUR_NS:
            continue
        taken = f"{FOLDER}{os.urandom(16).hex()}{_TAKEN}"
        list(store.create([(taken, "\n".join(sorted(one.names)).encode())]))
        until, keep = time.monotonic() + _TURN_S, named()
        for group in batches((each for each in sorted(one.names) if each not in keep), 1000):
            if time.monotonic() > until:
                return True
            store.remove(group)
        store.remove([name, taken])
    return bool(found)


def _write(store: Objects, names: Collection[str]) -> int:
    """Write a new mark, which stays if it has names; returns its date by the store."""
    name = f"{FOLDER}{os.urandom(16).hex()}"
    list(store.create([(name, "\n".join(sorted(names)).encode())]))
    written_ns = next((one.written_ns for one in store.listed(FOLDER) if one.name == name), 0)
    if not names:
        store.remove([name])
    return written_ns
