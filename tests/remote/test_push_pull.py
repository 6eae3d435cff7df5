"""Push and pull between machines that share only a store: which entries move, and which are refused."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from gpucache.answers.entries import CacheEntry
from gpucache.answers.transfer import Immovable, Pulled, PullResult, Pushed, PushResult, Unsound
from gpucache.caches.interface import Cache
from gpucache.errors import RemoteError
from gpucache.folders import Folder
from gpucache.remote.catalogue import objects_of, read_catalogue
from gpucache.remote.folder import FolderObjects
from gpucache.remote.machine import Machine
from gpucache.remote.objects import Objects, open_objects
from gpucache.remote.pull import pull
from gpucache.remote.push import push
from gpucache.remote.records import parse_line
from gpucache.remote.signing import SigningKey, TrustedKeys, load_signing_key, make_pair, read_trusted
from gpucache.store.trust import open_root
from tests.caches.pytools.build import poison
from tests.contracts.examples import EXAMPLES, open_example

SYSTEMS = ("gpucache", "triton", "cupy")


@dataclass
class Fleet:
    """A store, the key of the pushing machine, and machines that are directories."""

    place: Path
    key: SigningKey

    @property
    def store(self) -> Objects:
        return open_objects(str(self.place / "store"))

    @property
    def trusted(self) -> TrustedKeys:
        """The signers that machines trust with this key."""
        return read_trusted(self.key.public.text)

    def cache(self, machine: str, system: str) -> Cache:
        return open_example(system, self.place / machine / system / EXAMPLES[system].place)

    def make(self, machine: str, system: str, entries: int = 3) -> Cache:
        EXAMPLES[system].make(self.place / machine / system, entries)
        return self.cache(machine, system)

    def push(self, *caches: Cache, key: SigningKey, dry_run: bool = False) -> list[object]:
        selected = [(cache, list(cache.scan())) for cache in caches]
        return list(
            push(
                selected,
                self.store,
                key=key,
                trusted=self.trusted,
                sources=True,
                dry_run=dry_run,
                progress=lambda *_: None,
            )
        )

    def pull(
        self,
        *caches: Cache,
        trusted: TrustedKeys,
        machine: Machine | None = Machine(),  # noqa: B008 - frozen
        store: Objects | None = None,
        dry_run: bool = False,
    ) -> list[object]:
        """Pull into some caches, on a machine that must not be asked if it is None."""

        def asked(_: object) -> Machine:
            assert machine is not None
            return machine

        return list(
            pull(
                store or self.store,
                caches,
                trusted=trusted,
                machine=asked,
                dry_run=dry_run,
                progress=lambda *_: None,
            )
        )


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Fleet:
    make_pair(tmp_path / "key")
    return Fleet(tmp_path, load_signing_key(tmp_path / "key"))


def _results(outcomes: Sequence[object]) -> list[str]:
    return [one.result.value if isinstance(one, Pushed | Pulled) else type(one).__name__ for one in outcomes]


def first(cache: Cache) -> CacheEntry:
    """An entry of a cache; the scan ends, which closes its files."""
    entry, *_ = cache.scan()
    return entry


def _sound(cache: Cache) -> int:
    """The number of entries, none of which has a fault."""
    entries = list(cache.scan())
    assert not [one for entry in entries for one in cache.check(entry).findings if one.kind.wrong]
    return len(entries)


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_one_machine_pushed_another_has(fleet: Fleet, system: str) -> None:
    """All entries arrive sound; pushing and pulling again moves nothing, in both directions, and the drivers
    are not asked about entries that are there.
    """
    there = fleet.make("a", system)
    assert _results(fleet.push(there, key=fleet.key)) == ["sent"] * 3
    assert _results(fleet.push(there, key=fleet.key)) == ["present"] * 3
    here = fleet.cache("b", system)
    assert _results(fleet.pull(here, trusted=fleet.trusted)) == ["pulled"] * 3
    assert _sound(fleet.cache("b", system)) == 3
    again = fleet.pull(fleet.cache("b", system), trusted=fleet.trusted, machine=None)
    assert _results(again) == ["present"] * 3
    assert _results(fleet.push(fleet.cache("b", system), key=fleet.key)) == ["present"] * 3


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_push_after_a_pull_moves_nothing_with_another_key(fleet: Fleet, system: str) -> None:
    """A machine that trusts the first signer does not sign the same entries again."""
    fleet.push(fleet.make("a", system), key=fleet.key)
    fleet.pull(fleet.cache("b", system), trusted=fleet.trusted)
    make_pair(fleet.place / "other")
    other = load_signing_key(fleet.place / "other")
    assert _results(fleet.push(fleet.cache("b", system), key=other)) == ["present"] * 3


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_dry_run_writes_nothing(fleet: Fleet, system: str) -> None:
    """It lists the entries that would be sent or pulled."""
    there = fleet.make("a", system)
    assert _results(fleet.push(there, key=fleet.key, dry_run=True)) == ["would-send"] * 3
    assert not (fleet.place / "store").exists()
    fleet.push(there, key=fleet.key)
    here = fleet.cache("b", system)
    assert _results(fleet.pull(here, trusted=fleet.trusted, dry_run=True)) == ["would-pull"] * 3
    assert not list(fleet.cache("b", system).scan())


def test_a_revoked_key_is_not_believed(fleet: Fleet) -> None:
    """A key that was removed from the trusted ones no longer counts."""
    fleet.push(fleet.make("a", "cupy"), key=fleet.key)
    assert _results(fleet.pull(fleet.cache("b", "cupy"), trusted=TrustedKeys({}))) == ["unsigned"] * 3


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_push_signs_what_a_store_has_unsigned(fleet: Fleet, system: str) -> None:
    """Nobody pulls entries without a signature; the machine that has them signs them by another push."""
    fleet.push(fleet.make("a", system), key=fleet.key)
    store = fleet.place / "store"
    for path in [
        one
        for one in store.rglob("*")
        if one.parent.parent.name == "entries" or one.parent.name == "catalogues"
    ]:
        lines = [replace(parse_line(line), signer="", signature="") for line in _records(path)]
        rest = path.read_bytes().partition(b"\n")[2] if path.parent.parent.name == "entries" else b""
        path.unlink()
        data = b"".join(one.line for one in lines) + rest
        if path.parent.name == "catalogues":
            (path.parent / sha256(data).hexdigest()).write_bytes(data)
        elif lines:
            path.with_name(f"{lines[0].record.key}-unsigned").write_bytes(data)
    assert _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted)) == ["unsigned"] * 3
    assert _results(fleet.push(fleet.cache("a", system), key=fleet.key)) == ["sent"] * 3
    assert _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted)) == ["pulled"] * 3


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_push_that_goes_on_sees_what_others_sent(
    fleet: Fleet, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the store again after a while, here at once."""
    monkeypatch.setattr("gpucache.remote.push._ANEW_S", -1.0)
    there = fleet.make("a", system)

    def more() -> Iterator[Sequence[tuple[Cache, Sequence[CacheEntry]]]]:
        fleet.push(there, key=fleet.key)
        yield [(there, list(there.scan()))]

    found = push(
        [], fleet.store, key=fleet.key, trusted=fleet.trusted, sources=True, dry_run=False,
        progress=lambda *_: None, more=more(),
    )  # fmt: skip
    assert _results(list(found)) == ["present"] * 3


def _records(path: Path) -> list[bytes]:
    lines = path.read_bytes().splitlines(keepends=True)
    return lines[:-1] if path.parent.name == "catalogues" else lines[:1]  # the last one is a seal


def test_a_poisoned_pickle_is_not_sent_and_a_sound_one_is_pulled(fleet: Fleet) -> None:
    """One imports only what its owner writes."""
    there = fleet.make("a", "pytools")
    poison(Path(first(there).path), b"\x80\x02cposix\nsystem\nX\x05\x00\x00\x00false\x85R.")
    assert sorted(_results(fleet.push(fleet.cache("a", "pytools"), key=fleet.key))) == [
        "failed",
        "sent",
        "sent",
    ]
    assert _results(fleet.pull(fleet.cache("b", "pytools"), trusted=fleet.trusted)) == ["pulled"] * 2


@pytest.mark.parametrize("system", SYSTEMS)
def test_changed_and_missing_objects_are_damage(fleet: Fleet, system: str) -> None:
    """An entry with a changed or missing object does not reach the cache, and others do."""
    fleet.push(fleet.make("a", system), key=fleet.key)
    objects = sorted(
        path
        for folder in ("blobs", "entries")
        for path in (fleet.place / "store" / folder).rglob("*")
        if path.is_file()
    )
    for number, path in enumerate(objects[:4]):
        for change in (lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data[:-1], None):
            kept = path.read_bytes()
            if change is None:
                path.unlink()
            else:
                path.write_bytes(change(kept))
            machine = f"b{number}-{change is None}"
            shutil.rmtree(fleet.place / machine, ignore_errors=True)
            outcomes = fleet.pull(fleet.cache(machine, system), trusted=fleet.trusted)
            assert "damaged" in _results(outcomes)
            assert _sound(fleet.cache(machine, system)) == _results(outcomes).count("pulled") < 3
            path.write_bytes(kept)


def test_changed_catalogues_are_findings(fleet: Fleet) -> None:
    """A catalogue whose bytes contradict its name, and garbage next to it, are reported and not used."""
    fleet.push(fleet.make("a", "cupy"), key=fleet.key)
    [catalogue] = (fleet.place / "store" / "catalogues").iterdir()
    kept = catalogue.read_bytes()
    catalogue.write_bytes(kept.replace(b"cupy", b"cupx"))
    (catalogue.parent / "garbage").write_bytes(b"x")
    outcomes = fleet.pull(fleet.cache("b", "cupy"), trusted=fleet.trusted)
    assert all(isinstance(one, Unsound) for one in outcomes)
    assert len(outcomes) == 2


def test_records_that_were_swapped_are_not_believed(fleet: Fleet) -> None:
    """The files of one entry below the record of another are not accepted from any catalogue."""
    fleet.push(fleet.make("a", "cupy"), key=fleet.key)
    [catalogue] = (fleet.place / "store" / "catalogues").iterdir()
    told = [json.loads(line) for line in catalogue.read_bytes().splitlines()]
    told[0]["record"]["files"], told[1]["record"]["files"] = (
        told[1]["record"]["files"],
        told[0]["record"]["files"],
    )
    data = b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in told)
    catalogue.unlink()
    (catalogue.parent / sha256(data).hexdigest()).write_bytes(data)
    assert sorted(_results(fleet.pull(fleet.cache("b", "cupy"), trusted=fleet.trusted))) == [
        "pulled", "unsigned", "unsigned"
    ]  # fmt: skip


def test_entries_for_another_machine_are_told_by_the_fact(fleet: Fleet) -> None:
    """A known fact that differs keeps an entry away; an unknown one is named."""
    fleet.push(fleet.make("a", "triton"), key=fleet.key)
    here = fleet.cache("b", "triton")
    machine = Machine({"architecture": frozenset({"sm_12345"})})
    outcomes = fleet.pull(here, trusted=fleet.trusted, machine=machine)
    assert _results(outcomes) == ["differs"] * 3
    assert isinstance(outcomes[0], Pulled)
    assert [one.fact for one in outcomes[0].differences] == ["architecture"]
    assert not list(here.scan())


def test_two_variants_of_a_key_live_side_by_side(fleet: Fleet) -> None:
    """Two machines that compiled the same kernel both keep theirs in the store; a pull takes one, whole."""
    fleet.push(fleet.make("a", "triton", 1), key=fleet.key)
    other = fleet.make("b", "triton", 1)
    for path in Path(first(other).path).parent.glob("*.ttir"):
        path.write_bytes(path.read_bytes() + b"\n")
    assert _results(fleet.push(other, key=fleet.key)) == ["sent"]
    assert _results(fleet.pull(fleet.cache("c", "triton"), trusted=fleet.trusted)) == ["pulled"]
    assert _sound(fleet.cache("c", "triton")) == 1


def test_equal_files_are_kept_once(fleet: Fleet) -> None:
    """The number of objects is the number of different contents."""
    fleet.push(fleet.make("a", "triton"), key=fleet.key)
    files = [path for path in (fleet.place / "a").rglob("*") if path.is_file()]
    blobs = [path for path in (fleet.place / "store" / "blobs").rglob("*") if path.is_file()]
    assert len(blobs) == len({path.read_bytes() for path in blobs}) < len(files)


def test_many_pushes_leave_few_catalogues(fleet: Fleet) -> None:
    """They are merged, and nothing is lost."""
    for number in range(40):
        cache = fleet.make(f"m{number}", "gpucache", number % 3 + 1)
        make_pair(fleet.place / f"k{number}")
        fleet.push(cache, key=load_signing_key(fleet.place / f"k{number}"))
    assert len(read_catalogue(fleet.store, fleet.trusted).names) <= 33
    everybody = read_trusted(" ".join(str(fleet.place / f"k{number}.pub") for number in range(40)))
    assert _results(fleet.pull(fleet.cache("x", "gpucache"), trusted=everybody)) == ["pulled"] * 3


def test_a_system_that_does_not_move_says_why(fleet: Fleet) -> None:
    """Nothing of it is read or written."""
    [outcome] = fleet.push(fleet.make("a", "steam"), key=fleet.key)
    assert isinstance(outcome, Immovable)
    assert outcome.reason


def test_a_damaged_entry_is_not_pushed(fleet: Fleet) -> None:
    """Others are."""
    cache = fleet.make("a", "cupy")
    EXAMPLES["cupy"].cut(first(cache))
    outcomes = fleet.push(fleet.cache("a", "cupy"), key=fleet.key)
    assert sorted(_results(outcomes)) == ["failed", "sent", "sent"]
    assert {one.result for one in outcomes if isinstance(one, Pushed)} == {PushResult.FAILED, PushResult.SENT}
    assert _results(fleet.pull(fleet.cache("b", "cupy"), trusted=fleet.trusted)) == [PullResult.PULLED] * 2


def test_what_no_entry_names_is_listed_as_not_compared(fleet: Fleet) -> None:
    """Facts that decide about a hit but are stored nowhere are reported with each pulled entry."""
    fleet.push(fleet.make("a", "cupy"), key=fleet.key)
    outcomes = fleet.pull(fleet.cache("b", "cupy"), trusted=fleet.trusted)
    assert {one for outcome in outcomes if isinstance(outcome, Pulled) for one in outcome.unknown} >= {
        "NVRTC"
    }


def test_an_entry_with_nothing_in_it_is_left_and_no_failure(fleet: Fleet) -> None:
    """A dictionary of pytools without rows is sound, but useless to other machines."""
    path = Path(first(fleet.make("a", "pytools", 1)).path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM dict")
    [outcome] = fleet.push(fleet.cache("a", "pytools"), key=fleet.key)
    assert isinstance(outcome, Pushed)
    assert (outcome.result, outcome.reason) == (PushResult.REFUSED, "it is empty")


def test_a_cache_that_cannot_be_opened_says_why(fleet: Fleet) -> None:
    """A file in place of its directory is the reason that is reported."""
    fleet.push(fleet.make("a", "cupy"), key=fleet.key)
    (fleet.place / "b").mkdir()
    (fleet.place / "b" / "cupy").write_bytes(b"x")
    [outcome] = fleet.pull(fleet.cache("b", "cupy"), trusted=fleet.trusted)
    assert isinstance(outcome, Immovable)
    assert "is not a directory" in outcome.reason


def test_a_pull_opens_its_root_once_for_all_entries(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening takes longer than writing an entry, so the number of entries does not matter."""
    opened: list[Path] = []

    def counted(path: Path) -> Folder:
        folder = open_root(path)
        opened.append(path)
        return folder

    monkeypatch.setattr("gpucache.store.root_folder.open_root", counted)
    numbers = []
    for size in (3, 30):
        fleet.push(fleet.make(f"from-{size}", "gpucache", size), key=fleet.key)
        opened.clear()
        pulled = fleet.pull(fleet.cache(f"to-{size}", "gpucache"), trusted=fleet.trusted)
        assert "pulled" in _results(pulled)
        numbers.append(len(opened))
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize(("step_s", "workers"), [(0, []), (1, [2])])
def test_a_thread_reads_ahead_where_reads_take_time(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, step_s: int, workers: list[int]
) -> None:
    """Of a store on a local disk the thread would cost more than it saves."""
    fleet.push(fleet.make("a", "cupy", 3), key=fleet.key)
    clock, asked = count(step=step_s), list[int]()

    def parallel(call: Callable[[object], object], items: Iterable[object], workers: int) -> Iterable[object]:
        asked.append(workers)
        return map(call, items)

    monkeypatch.setattr("gpucache.remote.catalogue.in_parallel", parallel)
    monkeypatch.setattr("gpucache.remote.catalogue.time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert _results(fleet.pull(fleet.cache("b", "cupy"), trusted=fleet.trusted)) == ["pulled"] * 3
    assert asked == workers


def test_an_entry_that_is_there_is_present_whoever_signed_it(fleet: Fleet) -> None:
    """Nothing is taken from the store for it, so no signature matters."""
    there = fleet.make("a", "gpucache")
    fleet.push(there, key=fleet.key)
    assert _results(fleet.pull(there, trusted=TrustedKeys({}))) == ["present"] * 3


@pytest.mark.parametrize(("system", "together"), [*((one, 1) for one in SYSTEMS), ("gpucache", 64)])
def test_what_arrived_before_a_store_failed_is_kept(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, system: str, together: int
) -> None:
    """Also of entries that are read together; its outcomes come first, and the next pull gets the rest."""
    monkeypatch.setattr("gpucache.remote.catalogue._TOGETHER", together)
    monkeypatch.setattr("gpucache.remote.catalogue.in_parallel", lambda call, items, **_: map(call, items))
    fleet.push(fleet.make("a", system, 4), key=fleet.key)
    cache, seen = fleet.cache("b", system), list[object]()
    objects = [objects_of(one) for one in read_catalogue(fleet.store, fleet.trusted).records.values()]
    left = iter([name for each in objects[:3] for name, _ in each])

    class Failing(FolderObjects):
        def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
            for name, data in super().read(names, limit_bytes):
                if name.startswith(("entries/", "blobs/")) and next(left, None) is None:
                    raise RemoteError("it is slow")
                yield name, data

    with pytest.raises(RemoteError, match="it is slow"):
        for one in pull(
            Failing(fleet.place / "store"), [cache],
            trusted=fleet.trusted, machine=lambda _: Machine(), dry_run=False, progress=lambda *_: None,
        ):  # fmt: skip
            seen.append(one)
    assert _results(seen) == ["pulled"] * 3 and _sound(cache) == 3
    assert sorted(_results(fleet.pull(cache, trusted=fleet.trusted))) == ["present"] * 3 + ["pulled"]
