"""Caches of many builds, with one or two changes at a time, and the fate of an entry: no verdict is wrong."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.engine.explain import weight
from gpucache.engine.lookup import look_up
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import Stores
from gpucache.keys import difference
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Event
from tests.scenarios.drafts import Draft, change, drawn, made

_SEEDS = range(6)
_PER_SEED = 3
_NAMES = ("show", "show.cu", "kernels/show.cu", "old/show.cu", "renamed.cu")

Ready = Callable[..., Prepared]
Keep = Callable[[Stores, Prepared], None]


@dataclass(frozen=True, slots=True)
class Family:
    """A cache with several builds of one program, under one name or several."""

    store: DirectoryStore
    drafts: tuple[Draft, ...]
    built: tuple[Prepared, ...]

    @property
    def stores(self) -> Stores:
        return Stores(user=self.store)


@pytest.fixture
def family(ready: Ready, keep: Keep, tmp_path: Path) -> Callable[[Random, str], Family]:
    """Build variants of a random program, each one to three changes away from another."""

    def build(random: Random, root: str) -> Family:
        drafts = [replace(drawn(random), name=random.choice(_NAMES))]
        for _ in range(random.randint(2, 14)):
            draft = random.choice(drafts)
            for _ in range(random.randint(1, 3)):
                draft, _label = change(random, draft)
            drafts.append(replace(draft, name=random.choice([draft.name, *_NAMES])))
        store = DirectoryStore(tmp_path / root, writable=True)
        built: dict[str, tuple[Draft, Prepared]] = {}
        for draft in drafts:
            prepared = made(ready, draft, tmp_path / "include")
            if str(prepared.key) not in built:
                keep(Stores(user=store), prepared)
                built[str(prepared.key)] = draft, prepared
        kept, requests = zip(*built.values(), strict=True)
        return Family(store, kept, requests)

    return build


@pytest.mark.parametrize("seed", _SEEDS)
def test_the_nearest_of_many_builds_is_told(
    ready: Ready, family: Callable[[Random, str], Family], tmp_path: Path, seed: int
) -> None:
    """After one or two changes and a new name the nearest entry is reported, with all differences."""
    random = Random(seed)
    for number in range(_PER_SEED):
        cache = family(random, f"cache-{number}")
        asked = random.choice(cache.drafts)
        for _ in range(random.randint(1, 2)):
            asked, _label = change(random, asked)
        wanted = made(ready, replace(asked, name=random.choice(_NAMES)), tmp_path / "include")
        found = look_up(cache.stores, wanted)
        if any(one.key == wanted.key for one in cache.built):
            assert isinstance(found, Hit)
            continue
        assert isinstance(found, Miss)
        apart = {one.key: difference(one.fields, wanted.fields) for one in cache.built}
        assert found.nearest in apart, (asked, found)
        assert found.differences == apart[found.nearest], (asked, found)
        kin = [one for one in cache.built if _is_kin(one, wanted)]
        assert (found.verdict is Verdict.KEY_CHANGED) == bool(kin), (asked, found)
        assert weight(found.differences) == min(weight(apart[one.key]) for one in kin or cache.built), asked


def _is_kin(one: Prepared, other: Prepared) -> bool:
    """Whether two requests are of one program by its name, its file's name, or its source."""
    mine, others = one.request.program, other.request.program
    names = {program.name.rpartition("/")[2] for program in (mine, others)}
    return "show" in (mine.name, others.name) or len(names) == 1 or mine.source == others.source


def _evicted(cache: Family, wanted: Prepared) -> Stores:
    cache.store.remove(_entry(cache, wanted), "older than 30 d")
    return cache.stores


def _quarantined(cache: Family, wanted: Prepared) -> Stores:
    assert cache.store.quarantine(_entry(cache, wanted), "mislabelled: it is no cubin")
    return cache.stores


def _repaired(cache: Family, wanted: Prepared) -> Stores:
    os.truncate(_entry(cache, wanted).path, 50)
    assert cache.store.quarantine(_entry(cache, wanted), "truncated: 50 bytes")
    return cache.stores


def _truncated(cache: Family, wanted: Prepared) -> Stores:
    os.truncate(_entry(cache, wanted).path, 50)
    return cache.stores


def _removed_by_hand(cache: Family, wanted: Prepared) -> Stores:
    _entry(cache, wanted).path.unlink()
    return cache.stores


def _poisoned(cache: Family, wanted: Prepared) -> Stores:
    _entry(cache, wanted).path.unlink()
    event = Event(2**62, "poisoned", str(wanted.key), str(wanted.request.target), "it ran 300 s")
    cache.store.history.record(wanted.request.program.name, event)
    return cache.stores


def _disabled(cache: Family, wanted: Prepared) -> Stores:
    return cache.stores._replace(disabled=True)


def _read_only(cache: Family, wanted: Prepared) -> Stores:
    return Stores(user=DirectoryStore(cache.store.root, writable=False), read_only=True)


def _other_root(cache: Family, wanted: Prepared) -> Stores:
    elsewhere = DirectoryStore(cache.store.root.with_name("elsewhere"), writable=True)
    return Stores(user=elsewhere, unasked=lambda: [cache.store])


def _entry(cache: Family, wanted: Prepared) -> Any:
    scanned = cache.store.look_at(wanted.key)
    assert scanned is not None
    return scanned


_HAPPENINGS: dict[str, tuple[Callable[[Family, Prepared], Stores], str, str]] = {
    "evicted": (_evicted, "evicted", ": older than 30 d"),
    "quarantined": (_quarantined, "corrupt", ": mislabelled: it is no cubin"),
    "repaired": (_repaired, "corrupt", ": truncated: 50 bytes"),
    "truncated": (_truncated, "corrupt", "the entry was truncated: "),
    "removed-by-hand": (_removed_by_hand, "not-recorded", "is gone without a record"),
    "poisoned": (_poisoned, "poisoned", "it ran 300 s"),
    "disabled": (_disabled, "not-consulted", "GPUCACHE_DISABLE"),
    "read-only": (_read_only, "hit", ""),
    "other-root": (_other_root, "elsewhere", ", but this run looked in "),
}


@pytest.mark.parametrize("name", _HAPPENINGS)
def test_what_became_of_one_of_many_is_told(
    ready: Ready, family: Callable[[Random, str], Family], tmp_path: Path, name: str
) -> None:
    """Whatever else was built, and under any name, an entry's own fate is reported."""
    happen, verdict, words = _HAPPENINGS[name]
    random = Random(name)
    for number in range(2):
        cache = family(random, f"cache-{number}")
        draft = random.choice(cache.drafts)
        wanted = made(ready, draft, tmp_path / "include")
        stores = happen(cache, wanted)
        renamed = made(ready, replace(draft, name=random.choice(_NAMES)), tmp_path / "include")
        found = look_up(stores, renamed)
        told = "hit" if isinstance(found, Hit) else found.verdict.value
        assert told == verdict, (draft, found)
        assert isinstance(found, Hit) or words in found.detail, found
