"""Entries that move to another machine: every system whose entries move keeps one contract.

An entry leaves one cache in its portable form and comes into another at another place, where its format
finds it sound and would send it on unchanged. Anything else is not written.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpucache.answers.entries import CacheEntry
from gpucache.caches.format import architecture
from gpucache.caches.interface import Cache
from gpucache.caches.portable import Fact, PortableEntry, PortableFile
from gpucache.caches.registry import OWN
from gpucache.caches.restoring import STAGING
from gpucache.errors import FormatError
from gpucache.remote.records import record_of
from tests.caches.cupy import build as cupy
from tests.contracts.examples import EXAMPLES, Example, open_example


def _moves(name: str) -> bool:
    return not open_example(name, Path("/nowhere/at/all")).moving.why_not


MOVING = [name for name, one in EXAMPLES.items() if not one.opaque and _moves(name)]
every_moving = pytest.mark.parametrize("name", MOVING)


def _packed(cache: Cache) -> list[PortableEntry]:
    return [cache.pack(entry) for entry in scanned(cache)]


def scanned(cache: Cache) -> Sequence[CacheEntry]:
    """The entries of a cache in the order of their keys."""
    return sorted(cache.scan(), key=lambda one: one.key)


def _sent(name: str, folder: Path) -> tuple[Example, list[PortableEntry]]:
    """An example, and its entries in their portable form; the cache is gone."""
    example = EXAMPLES[name]
    place = example.make(folder / "there")
    packed = _packed(open_example(name, place))
    (folder / "there").rename(folder / "gone")
    return example, packed


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@every_moving
def test_entries_that_moved_are_sound_and_move_on_unchanged(name: str, tmp_path: Path) -> None:
    """Each is found at the other place, has no fault there, and keeps its digest; nothing else is left."""
    example, packed = _sent(name, tmp_path)
    place = tmp_path / "here" / example.place
    assert [one.done for one in open_example(name, place).restore(packed)] == [True] * len(packed)
    cache = open_example(name, place)
    for entry in scanned(cache):
        assert not [one for one in cache.check(entry).findings if one.kind.wrong]
    assert [record_of(one).digest for one in _packed(cache)] == [record_of(one).digest for one in packed]
    assert not [one for one in _files(tmp_path / "here") if STAGING in one]


def test_entries_of_one_file_come_by_the_same_few_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A staging directory serves further entries, so that a pull of thousands makes no more of them."""
    made, mkdir = list[object](), os.mkdir

    def counted(path: str, *args: object, **named: object) -> None:
        made.append(path)
        mkdir(path, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "mkdir", counted)
    counts = []
    for count in (100, 200):
        place, there = tmp_path / f"here{count}", tmp_path / f"there{count}"
        for number in range(count):
            cupy.put(there, number)
        packed = _packed(open_example("cupy", there))
        made.clear()
        assert all(one.done for one in open_example("cupy", place).restore(packed))
        counts.append(len(made))
    assert counts[0] == counts[1]


@every_moving
def test_a_sound_entry_is_never_written_over(name: str, tmp_path: Path) -> None:
    """Restoring twice leaves every file as it was."""
    example, packed = _sent(name, tmp_path)
    place = tmp_path / "here" / example.place
    list(open_example(name, place).restore(packed))
    before = {path: (tmp_path / "here" / path).stat().st_ino for path in _files(tmp_path / "here")}
    assert [one.present for one in open_example(name, place).restore(packed)] == [True] * len(packed)
    assert {path: (tmp_path / "here" / path).stat().st_ino for path in before} == before


@every_moving
def test_a_damaged_entry_is_replaced(name: str, tmp_path: Path) -> None:
    """A damaged local entry is replaced by one from elsewhere."""
    example, packed = _sent(name, tmp_path)
    place = tmp_path / "here" / example.place
    list(open_example(name, place).restore(packed))
    cache = open_example(name, place)
    example.cut(scanned(cache)[0])
    if not any(one.kind.wrong for entry in scanned(cache) for one in cache.check(entry).findings):
        pytest.skip("its format does not see that its end is gone")
    assert sum(one.done for one in open_example(name, place).restore(packed)) == 1
    again = open_example(name, place)
    assert [record_of(one).digest for one in _packed(again)] == [record_of(one).digest for one in packed]


_ROWS = {"pytools"}
"""Systems whose files are rows of a database, for which any rows are valid."""


def _damages(entry: PortableEntry) -> Iterator[tuple[str, PortableEntry]]:
    first, *rest = entry.files
    if entry.system not in _ROWS:
        yield "no first file", entry._replace(files=tuple(rest))
    stranger = PortableFile("stranger/here.txt", b"x", 0o644)
    yield "a stranger beside it", entry._replace(files=(*entry.files, stranger))
    above = first._replace(name=f"deeper/{first.name}")
    yield "in another place", entry._replace(files=(above, *rest))
    yield "an empty file", entry._replace(files=tuple(one._replace(data=b"") for one in entry.files))


@every_moving
def test_what_is_no_entry_is_not_written(name: str, tmp_path: Path) -> None:
    """Files that are missing, too many, elsewhere or empty leave the other cache as it was."""
    example, packed = _sent(name, tmp_path)
    place = tmp_path / "here" / example.place
    for what, changed in _damages(packed[0]):
        if not changed.files:
            continue
        done = [one.done for one in open_example(name, place).restore([changed])]
        assert done == [False], what
    assert not _files(tmp_path / "here")


@every_moving
def test_a_damaged_entry_does_not_leave(name: str, tmp_path: Path) -> None:
    """An entry that verify finds wrong is not packed."""
    example = EXAMPLES[name]
    cache = open_example(name, example.make(tmp_path / "there"))
    for entry in scanned(cache):
        example.cut(entry)
        changed = next(one for one in scanned(cache) if one.path == entry.path)
        if any(one.kind.wrong for one in cache.check(changed).findings):
            with pytest.raises(FormatError):
                cache.pack(changed)
        break


@pytest.mark.parametrize("name", [name for name in MOVING if name != OWN])
def test_what_a_killed_process_left_is_removed_at_the_next_start(name: str, tmp_path: Path) -> None:
    """A staging directory that no process holds is removed; one of a living process stays."""
    example, packed = _sent(name, tmp_path)
    place = tmp_path / "here" / example.place
    dead = (place.parent if example.place else place) / f"{STAGING}1-dead"
    dead.mkdir(parents=True)
    (dead / "file").write_bytes(b"x")
    list(open_example(name, place).restore(packed))
    assert not dead.exists()


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("triton", {"architecture": "sm_90", "version": "3.9.0"}),
        ("warp", {"PTX for": "compute_90", "version": "1.19.0"}),
        ("cuda.core", {"PTX for": "compute_90"}),
        ("opencv", {"architecture": "NVIDIA_GeForce_RTX_4090", "driver": "550_54_14"}),
        ("jax", {"JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none", "compression": "zlib"}),
        ("tilelang", {"architecture": "sm_90", "version": "0.1.15"}),
        ("inductor", {}),
    ],
)
def test_an_entry_tells_what_decides_about_a_hit(name: str, facts: dict[str, str], tmp_path: Path) -> None:
    """Architectures as targets have them, and versions as packages have them."""
    entry, *_ = _packed(open_example(name, EXAMPLES[name].make(tmp_path)))
    assert dict(entry.facts) == facts


@pytest.mark.parametrize(
    ("target", "fact"),
    [
        ("cuda:sm_90", (Fact.ARCHITECTURE, "sm_90")),
        ("cuda:sm_100a", (Fact.ARCHITECTURE, "sm_100")),
        ("cuda:compute_80", (Fact.PTX, "compute_80")),
        ("cuda:compute_90a", (Fact.ARCHITECTURE, "sm_90")),
        ("hip:gfx942:sramecc+:xnack-", (Fact.ARCHITECTURE, "gfx942")),
        ("opencl:Some GPU", (Fact.ARCHITECTURE, "Some GPU")),
    ],
)
def test_the_architecture_is_that_of_a_device(target: str, fact: tuple[Fact, str]) -> None:
    """A binary for one architecture alone runs on its devices, a PTX on later ones as well."""
    assert architecture(target) == fact


def test_systems_that_move_are_known() -> None:
    """No system is dropped from the contract by accident."""
    moving = """
        gpucache triton cupy pyopencl pocl clesperanto pytools taichi sycl cuda.core warp jax opencv tilelang
        inductor
    """
    assert set(moving.split()) <= set(MOVING)
