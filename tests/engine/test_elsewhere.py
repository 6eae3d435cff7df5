"""Misses that another machine's store may serve: the requests, their moment, and the use of a reply."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.lookup import Hit, Miss
from gpucache.engine.hits import build_log, find, find_all
from gpucache.engine.lookup import build, get_or_build, look_up
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import NoEntry, Stores
from gpucache.model import ArtifactKind, CacheKey, Entry
from gpucache.store.directory import DirectoryStore
from gpucache.store.format import encode
from gpucache.store.memory import MemoryStore
from tests.engine.conftest import Compiler, make_ready


@dataclass
class Elsewhere:
    """A store on another machine, and all requests to it."""

    there: dict[CacheKey, Entry] = field(default_factory=dict)
    asked: list[list[tuple[CacheKey, ...]]] = field(default_factory=list)
    sent: list[Entry] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    writes: bool = True
    queried: str = "s3://far"

    def find(self, wanted: Sequence[Sequence[CacheKey]]) -> list[tuple[Entry, bytes] | None]:
        self.asked.append([tuple(keys) for keys in wanted if keys])
        found = [next((self.there[key] for key in keys if key in self.there), None) for keys in wanted]
        return [None if entry is None else (entry, encode(entry)) for entry in found]

    def send(self, entry: Entry) -> None:
        self.sent.append(entry)

    def flush(self, limit_s: float | None = None) -> None: ...

    def warn(self, sentence: str) -> None:
        self.told.append(sentence)


def _ready(value: int, **more: Any) -> Prepared:
    return make_ready("kernel void show() {}", options=(f"-DVALUE={value}",), **more)


@pytest.fixture(name="far")
def _far(tmp_path: Path) -> Elsewhere:
    """A store that has the builds of another machine with the values 0 to 3."""
    maker, far = Stores(user=DirectoryStore(tmp_path / "maker", writable=True)), Elsewhere()
    sender = maker._replace(remote=lambda: far)
    for value in range(4):
        get_or_build(sender, _ready(value), Compiler())
    far.there = {entry.key: entry for entry in far.sent}
    far.asked, far.sent = [], []
    return far


@pytest.fixture(name="here")
def _here(store: DirectoryStore, far: Elsewhere) -> Stores:
    return Stores(user=store, memory=MemoryStore(1 << 20), remote=lambda: far)


def test_the_reason_of_a_miss_names_the_store(here: Stores) -> None:
    """It was queried, as the roots were."""
    found = look_up(here, _ready(9))
    assert isinstance(found, Miss) and found.detail.endswith("/cache, s3://far")


def test_misses_of_one_lookup_are_asked_for_together(here: Stores, far: Elsewhere) -> None:
    """Only local misses are requested, in one request, each with both of its keys."""
    get_or_build(here._replace(remote=None), _ready(0), Compiler())
    requests = [_ready(value) for value in (0, 1, 2, 9)]
    found = find_all(here, requests)
    assert [isinstance(one, Hit) for one in found] == [True, True, True, False]
    assert [one.store for one in found if isinstance(one, Hit)][1:] == ["remote", "remote"]
    assert far.asked == [[(one.key, one.located_key) for one in requests[1:]]]


def test_a_fetched_entry_is_a_local_one_from_then_on(here: Stores, far: Elsewhere) -> None:
    """Memory, root and history have it; the store is not queried again."""
    assert isinstance(find(here, _ready(1)), Hit)
    for stores in (here, here._replace(memory=None)):
        found = find(stores, _ready(1))
        assert isinstance(found, Hit) and found.store != "remote"
    assert len(far.asked) == 1
    assert here.user is not None
    assert [event.what for event in here.user.history.events("show")] == ["pulled"]
    miss = look_up(here, _ready(8))
    assert not isinstance(miss, Hit) and miss.verdict == "key-changed"


def test_an_entry_that_is_gone_is_fetched_again(here: Stores, far: Elsewhere) -> None:
    """A damaged file goes to quarantine, and the fetched one takes its place."""
    here = here._replace(memory=None)
    find(here, _ready(1))
    assert here.user is not None
    (path,) = here.user.root.rglob("*.gpc")
    path.write_bytes(b"damaged")
    found = find(here, _ready(1))
    assert isinstance(found, Hit) and found.store == "remote"
    assert isinstance(find(here, _ready(1)), Hit)
    assert len(far.asked) == 2


def test_the_log_of_a_build_comes_along_where_nothing_is_kept(here: Stores, far: Elsewhere) -> None:
    """A read-only machine gets entry and log, and writes nothing."""
    found = find(here._replace(read_only=True), _ready(1))
    assert isinstance(found, Hit)
    assert build_log(here, _ready(1), found, "") == "a log"
    assert here.user is not None
    assert not here.user.root.exists()


@pytest.mark.parametrize("change", [{"disabled": True}, {"remote": None}])
def test_a_cache_that_is_disabled_asks_nothing(here: Stores, far: Elsewhere, change: dict[str, Any]) -> None:
    """A program without such a store asks nothing either."""
    assert isinstance(find(here._replace(**change), _ready(1)), NoEntry)
    assert far.asked == []


def test_a_program_that_has_no_key_is_not_asked_for(here: Stores, far: Elsewhere) -> None:
    """It is refused as without such a store."""
    assert isinstance(find(here, make_ready("kernel void show() { __TIME__; }")), NoEntry)
    assert far.asked == []


def test_a_build_sends_what_it_published(here: Stores, far: Elsewhere) -> None:
    """It queries once: after the lock of the key is taken, only local caches are looked in."""
    get_or_build(here, _ready(9), Compiler())
    assert [entry.key for entry in far.sent] == [_ready(9).key]
    assert len(far.asked) == 1


def test_nothing_is_sent_that_was_not_kept(here: Stores, far: Elsewhere) -> None:
    """As when a header changes during the compile."""
    found = look_up(here, _ready(9))
    assert not isinstance(found, Hit)
    build(here._replace(read_only=True), _ready(9), Compiler(), found)
    assert far.sent == []


def test_an_entry_without_the_local_sizes_is_incomplete(
    here: Stores, far: Elsewhere, ready: Callable[..., Prepared]
) -> None:
    """For filling the cache an incomplete entry of another machine is as one of this machine: built on."""
    sized = _ready(1, implementation="pocl", local_sizes=((64,),))
    plain = _ready(1, implementation="pocl")
    maker = Stores(user=DirectoryStore(here.user.root.parent / "pocl", writable=True), remote=lambda: far)  # type: ignore[union-attr]
    get_or_build(maker, plain, Compiler(kind=ArtifactKind.OPENCL_BINARY))
    far.there = {entry.key: entry for entry in far.sent}
    assert far.there
    found = find(here, sized, whole=True)
    assert isinstance(found, NoEntry) and found.incomplete is not None
    assert isinstance(find(here, sized), Hit)


def test_a_root_that_is_full_is_one_sentence(
    here: Stores, far: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has its hit, and the user learns that it is fetched each time."""

    def full(*_: object, **__: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DirectoryStore, "put_file", full)
    assert isinstance(find(here._replace(memory=None), _ready(1)), Hit)
    assert len(far.told) == 1 and "space" in far.told[0].lower()


def test_a_fetched_entry_is_used_now(here: Stores) -> None:
    """It is not the first that the bound of the cache removes, however long ago it was built."""
    assert isinstance(find(here, _ready(1)), Hit) and here.user is not None
    (one,) = here.user.scan()
    assert one.head is not None and one.identity.mtime_ns > one.head.created_ns


def test_the_bound_of_the_cache_is_kept(here: Stores, far: Elsewhere) -> None:
    """Fetched entries count towards the size limit as built ones do."""
    calls: list[None] = []
    find_all(here._replace(trim=lambda: calls.append(None)), [_ready(1), _ready(2)])
    assert len(calls) == 1
