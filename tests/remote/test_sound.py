"""Entries that an earlier push or pull found sound are not read again, unless a file changed."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpucache.answers.transfer import Pulled, Pushed
from gpucache.caches import foreign_cache, stamps
from gpucache.caches.interface import Cache
from gpucache.caches.own import OwnCache
from gpucache.caches.stamps import Sound
from gpucache.host import file_stamps
from gpucache.remote.catalogue import read_catalogue
from gpucache.remote.push import push
from gpucache.remote.signing import load_signing_key, make_pair
from gpucache.store.directory import DirectoryStore
from gpucache.store.records import Memos
from gpucache.store.root_folder import RootFolder
from tests.remote.test_push_pull import SYSTEMS, Fleet, first

_OTHERS = [one for one in SYSTEMS if one != "gpucache"]


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Machines whose files are a minute old, on a local file system."""
    monkeypatch.setattr(stamps, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + 60 * 10**9))
    monkeypatch.setattr(file_stamps, "shows_changes", lambda *_: True)
    make_pair(tmp_path / "key")
    return Fleet(tmp_path, load_signing_key(tmp_path / "key"))


class _Remembering:
    """A cache whose root remembers, as for one command."""

    def __init__(self, fleet: Fleet, machine: str, system: str) -> None:
        self.cache = fleet.cache(machine, system)
        memos = Memos(RootFolder(fleet.place / "root"))
        self.cache.sound = Sound(memos, self.cache.location().root)

    def __enter__(self) -> Cache:
        return self.cache

    def __exit__(self, *_: object) -> None:
        self.cache.sound.keep()


def _pushed(fleet: Fleet, system: str) -> Sequence[str]:
    with _Remembering(fleet, "a", system) as cache:
        return [one.result.value for one in fleet.push(cache, key=fleet.key) if isinstance(one, Pushed)]


def _pulled(fleet: Fleet, system: str) -> Sequence[str]:
    with _Remembering(fleet, "b", system) as cache:
        outcomes = fleet.pull(cache, trusted=fleet.trusted)
        return sorted(one.result.value for one in outcomes if isinstance(one, Pulled))


@pytest.fixture(name="read")
def _read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The keys of entries that are read whole."""
    keys: list[str] = []
    judge, is_sound = foreign_cache.judge, DirectoryStore.is_sound

    def judged(made: object, item: object) -> object:
        keys.append(getattr(item, "key"))  # noqa: B009 - of any type
        return judge(made, item)  # type: ignore[arg-type]

    def sound(store: DirectoryStore, key: object) -> bool:
        keys.append(str(key))
        return is_sound(store, key)  # type: ignore[arg-type]

    monkeypatch.setattr(foreign_cache, "judge", judged)
    monkeypatch.setattr(DirectoryStore, "is_sound", sound)
    yield keys


def _file_of(cache: Cache) -> Path:
    path = Path(first(cache).path)
    return path if path.is_file() else next(one for one in sorted(path.rglob("*")) if one.is_file())


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_second_push_reads_nothing(fleet: Fleet, read: list[str], system: str) -> None:
    """But the entry of a changed file, even if its time was set back."""
    fleet.make("a", system)
    assert _pushed(fleet, system) == ["sent"] * 3
    read.clear()
    assert _pushed(fleet, system) == ["present"] * 3 and not read
    path = _file_of(fleet.cache("a", system))
    status = path.stat()
    path.chmod(0o400)
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert _pushed(fleet, system) == ["present"] * 3
    assert len(read) == (0 if system == "gpucache" else 1)  # of ours a key says all


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_second_pull_reads_nothing(fleet: Fleet, read: list[str], system: str) -> None:
    """But the entry of a changed file, which is not there any more if that shows."""
    fleet.push(fleet.make("a", system), key=fleet.key)
    assert _pulled(fleet, system) == ["pulled"] * 3
    read.clear()
    assert _pulled(fleet, system) == ["present"] * 3 and not read
    path = _file_of(fleet.cache("b", system))
    status, data = path.stat(), path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    last = "present" if system == "triton" else "pulled"
    assert _pulled(fleet, system) == ["present", "present", last] and len(set(read)) == 1


@pytest.mark.parametrize("system", _OTHERS)
@pytest.mark.parametrize("why", ["young", "remote", "damaged"])
def test_what_may_have_changed_unseen_is_read(
    fleet: Fleet, read: list[str], monkeypatch: pytest.MonkeyPatch, system: str, why: str
) -> None:
    """Files that were changed just now, or on file systems without such times, or whose memo is damaged."""
    if why == "young":
        monkeypatch.setattr(stamps, "time", time)
    if why == "remote":
        monkeypatch.setattr(file_stamps, "shows_changes", lambda *_: False)
    fleet.make("a", system)
    _pushed(fleet, system)
    for path in (fleet.place / "root").rglob("records.row"):
        if why == "damaged":
            path.write_bytes(path.read_bytes()[:-1])
    read.clear()
    assert _pushed(fleet, system) == ["present"] * 3
    assert len(set(read)) == 3


def test_an_entry_that_is_sent_without_its_head_is_named(fleet: Fleet) -> None:
    """A push needs no heads, and says the program of an entry that it sends, finds there, or cannot read."""
    cache = fleet.make("a", "gpucache")
    assert isinstance(cache, OwnCache)
    programs = {one.program for one in cache.scan()}
    for result in ("sent", "present", "failed"):
        if result == "failed":
            (fleet.place / "store").rename(fleet.place / "gone")
            for entry in cache.scan():
                Path(entry.path).write_bytes(Path(entry.path).read_bytes()[:-1] + b"!")
        outcomes = push(
            [(cache, cache.entries(heads=False))], fleet.store, key=fleet.key, trusted=fleet.trusted,
            sources=True, dry_run=False, progress=lambda *_: None,
        )  # fmt: skip
        told = [one for one in outcomes if isinstance(one, Pushed)]
        assert {one.entry.program for one in told} == programs and {one.result for one in told} == {result}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_push_elsewhere_looks_at_what_it_sends(fleet: Fleet, system: str) -> None:
    """Of an entry that is known and not there every fact is in the record, as at the first push."""
    fleet.make("a", system)
    lines = []
    for place in ("first", "store"):
        with _Remembering(fleet, "a", system) as cache:
            selected = [(cache, cache.entries(heads=False))]
            outcomes = push(
                selected, fleet.store, key=fleet.key, trusted=fleet.trusted,
                sources=True, dry_run=False, progress=lambda *_: None,
            )  # fmt: skip
            assert [one.result.value for one in outcomes if isinstance(one, Pushed)] == ["sent"] * 3
        records = read_catalogue(fleet.store, fleet.trusted).records.values()
        lines.append(sorted(one.line for one in records))
        if place == "first":
            (fleet.place / "store").rename(fleet.place / place)
    assert lines[0] == lines[1]
