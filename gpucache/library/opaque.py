"""Entries under keys that only their owner understands: found, kept, and explained by its description.

Owns the common parts of the caches of cuda.core, Triton, CuPy: the owner's key goes into ours as it is, in a
namespace; the other facts of a build are in the entry's provenance. Must not import an owner.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from gpucache import __version__
from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.backends.installation import loaded_builds, replaced_file
from gpucache.engine.prepare import program_name as program_name
from gpucache.engine.stores import Stores, write_miss
from gpucache.errors import CacheMissError, CacheUnusableError
from gpucache.keys import REPLACED, cache_key, difference, digest
from gpucache.library import outcomes, process
from gpucache.model import NAMESPACE, CacheKey, Entry, EntryDetail, EntryHead, KeyField
from gpucache.store.interface import MADE, REMOTE, UNREADABLE, Event

_NEAREST_OF = 8
_PHRASES = 4
_GONE = {"evicted": Verdict.EVICTED, "quarantined": Verdict.CORRUPT}


class Owner(NamedTuple):
    """A system that keeps its binaries in our cache."""

    namespace: str
    name: str
    untold: str
    """Why a miss may have no reason, in one sentence."""
    compilers: tuple[str, ...] = ()
    """The compilers that it uses, by library: our keys add their builds, as its own has versions at most."""


Pairs = Sequence[tuple[str, str]]


def key_fields(owner: Owner, key: str, *others: tuple[str, str]) -> tuple[KeyField, ...]:
    own = ((NAMESPACE, owner.namespace), ("opaque key", key))
    return tuple(KeyField(*pair) for pair in (*own, *loaded_builds(owner.compilers), *others))


def entry(
    fields: Sequence[KeyField],
    payload: bytes,
    *,
    program: str,
    target: str,
    kind: str,
    compile_ns: int = 0,
    described: Pairs = (),
) -> Entry:
    """The entry of a payload; ``described`` is the owner's description."""
    head = EntryHead(program, target, kind, time.time_ns(), compile_ns, digest(payload))
    return Entry(
        cache_key(fields), head, EntryDetail(tuple(fields), "", __version__, tuple(described)), payload
    )


def binary(fields: Sequence[KeyField], program: str, payload: bytes, described: Pairs = ()) -> Entry:
    from gpucache.payload import PayloadKind, describe  # which no hit needs

    kinds = {PayloadKind.CUBIN: "cubin", PayloadKind.PTX: "ptx", PayloadKind.LTOIR: "ltoir"}
    info = describe(payload)
    target = f"cuda:{info.architecture or 'unknown'}"
    kind = kinds.get(info.kind, info.kind.value)
    return entry(fields, payload, program=program, target=target, kind=kind, described=described)


def look(stores: Stores, owner: Owner, key: CacheKey) -> Hit | None:
    """The sound entry of a key in the roots."""
    if stores.disabled:
        return None
    found = stores._replace(memory=None).find([key])
    if isinstance(found, Hit):
        return found
    for one in found.damaged:
        process.say_once(f"an entry of {owner.name} was {one.damage}: {one.detail}")
    return None


def find(stores: Stores, owner: Owner, key: CacheKey, wait: Callable[[], object] | None = None) -> Hit | None:
    """The entry of a key in the roots or in the store on another machine; counts the hit or miss.

    Raises CacheMissError if a hit is required.

    ``wait`` is called before a miss: it returns once no other process compiles for the key.
    """
    found = look(stores, owner, key)
    if found is None and stores.remote is not None:
        from gpucache.engine.elsewhere import fetch

        fetched = fetch(stores, key)
        found = None if fetched is None else Hit(key, fetched.head, fetched.payload, REMOTE)
    if found is None and wait is not None:
        wait()
        found = look(stores, owner, key)
    if found is not None:
        outcomes.tell_hit(stores, found)
        return found
    outcomes.count_miss(stores)
    if stores.require:
        raise CacheMissError(
            f"a program of {owner.name} is not in the cache, and GPUCACHE_REQUIRE is set: opaque-key: "
            f"{owner.untold}"
        )
    return None


def keep(stores: Stores, owner: Owner, made: Entry) -> bool:
    """Publish the compile of a miss, with the reason of the miss; whether that worked."""
    store, head = stores.target, made.head
    if store is None:
        return False
    unknown = next((field.value for field in made.detail.key_fields if REPLACED in field.value), None)
    if (file := replaced_file()) is not None or unknown:
        why = unknown or f"{REPLACED}{file}"
        process.say_once(f"programs of {owner.name} are not kept: {why}; start the program again")
        return False
    miss = _reason(stores, owner, made)
    outcomes.log_miss(head.program, head.target, miss, head.compile_ns)
    write_miss(stores, head.program, head.target, made.key, miss)
    try:
        store.publish(made)
    except (OSError, CacheUnusableError) as error:
        from gpucache.engine.stores import not_kept

        process.say_once(f"programs of {owner.name} are not kept: {not_kept(store.root, error)}")
        return False
    store.history.record(head.program, Event(head.created_ns, "built", str(made.key), head.target))
    if stores.remote is not None:
        stores.remote().send(made)
    if stores.trim is not None:
        with suppress(OSError, CacheUnusableError):
            stores.trim()
    return True


def _reason(stores: Stores, owner: Owner, made: Entry) -> Miss:
    """Why the entry is missing, or how the nearest build of its program and target differs."""
    key = str(made.key)
    events = [(one, store) for store in stores.on_disk() for one in store.history.events(made.head.program)]
    unnamed = [one for store in stores.on_disk() for one in store.history.events(UNREADABLE)]
    for event in (*reversed(unnamed), *(one for one, _ in reversed(events))):
        if event.key == key and event.what in _GONE:
            return Miss(_GONE[event.what], event.why)
    described = _described(made.detail)
    alike = [one for one in events if one[0].what in MADE and one[0].target == made.head.target]
    if not described:
        return Miss(Verdict.OPAQUE_KEY, owner.untold)
    if not alike:
        return Miss(Verdict.NEVER_BUILT, f"nothing was built as {made.head.program} for {made.head.target}")
    from gpucache.engine.explain import phrases  # which only a miss with such an entry needs

    nearest: list[tuple[int, Miss]] = []
    for event, store in alike[: -_NEAREST_OF - 1 : -1]:  # of equally near ones the newest
        detail = store.detail(CacheKey(event.key))
        if detail is not None and event.key != key:
            differences = difference(_described(detail), described)
            words = "; ".join(phrases(differences)[:_PHRASES])
            told = f"{words} (nearest: {event.key[:12]})"
            miss = Miss(Verdict.KEY_CHANGED, told, differences, CacheKey(event.key))
            nearest.append((len(differences), miss if words else Miss(Verdict.OPAQUE_KEY, owner.untold)))
    return min(nearest, key=lambda one: one[0], default=(0, Miss(Verdict.NOT_RECORDED, owner.untold)))[1]


def _described(detail: EntryDetail) -> tuple[KeyField, ...]:
    return tuple(KeyField(*pair) for pair in detail.provenance)
