"""Files laid by the rules of Taichi's offline cache, and what is said of those that break them."""

import os
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import CacheEntry, FindingKind
from gpucache.answers.evict import Kept
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from gpucache.caches.taichi import TaichiIndex
from gpucache.errors import FormatError
from tests.caches.opened import HOUR_NS, kinds, only, opened
from tests.caches.taichi.build import CODE, MADE_S, file_bytes, index_bytes, key, put

SYSTEM = of_others("taichi")

_NOW = 2 * 10**18


def _only(root: Path) -> tuple[Cache, CacheEntry]:
    cache = opened(SYSTEM, root, _NOW)
    return cache, only(cache)


def test_a_kernel_says_its_name_architecture_and_times(tmp_path: Path) -> None:
    """Times and Taichi's version are in the index."""
    put(tmp_path, data=file_bytes(architecture=3))
    cache, entry = _only(tmp_path)
    assert (entry.key, entry.program, entry.target) == (key(0), "scale", "cuda")
    assert (entry.created_ns, entry.last_used_ns) == (MADE_S * 10**9, (MADE_S + 60) * 10**9)
    assert entry.toolchain == (("Taichi", "1.7.4"),)
    assert not cache.check(entry).findings and cache.extract(entry) == CODE


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", FindingKind.TRUNCATED),
        (file_bytes()[:-1], FindingKind.TRUNCATED),
        (file_bytes()[:30], FindingKind.TRUNCATED),
        (file_bytes()[:-70] + b"x" + file_bytes()[-69:], FindingKind.CORRUPT),
        (b"TIC\0" + b"\xff" * 40, FindingKind.TRUNCATED),
        (b"garbage", FindingKind.MISLABELLED),
    ],
)
def test_a_damaged_kernel_goes_with_its_row(data: bytes, kind: FindingKind, tmp_path: Path) -> None:
    """Else Taichi would compile it at every start; the other kernels keep theirs."""
    put(tmp_path, 1)
    path = put(tmp_path, 0, data)
    cache = opened(SYSTEM, tmp_path, _NOW)
    (entry,) = cache.find(key(0))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and "at every start" in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()
    assert (tmp_path / "ticache.tcb").read_bytes() == index_bytes(key(1))
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"T{key(1)}.tic", "ticache.tcb"]


def test_a_kernel_of_another_size_than_in_the_index_is_another_kernel(tmp_path: Path) -> None:
    """Taichi runs what is there, without a word; bytes behind a kernel it ignores."""
    put(tmp_path, data=file_bytes() + b"behind it")
    cache, entry = _only(tmp_path)
    assert not cache.check(entry).findings and cache.extract(entry) == CODE
    put(tmp_path, data=file_bytes(CODE * 2))
    cache, entry = _only(tmp_path)
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.MISLABELLED] and "another kernel" in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired and not list(tmp_path.glob("*.tic"))


def test_a_row_whose_file_is_gone_is_found_and_taken_out(tmp_path: Path) -> None:
    """A file that was removed by hand is never written again."""
    put(tmp_path, 1)
    put(tmp_path, 0).unlink()
    cache = opened(SYSTEM, tmp_path, _NOW)
    (checked,) = cache.leftovers()
    assert kinds(checked) == [FindingKind.TRUNCATED] and "1 of 2 rows" in checked.findings[0].detail
    assert cache.repair(checked, None).findings[0].repaired
    assert (tmp_path / "ticache.tcb").read_bytes() == index_bytes(key(1))
    assert not list(opened(SYSTEM, tmp_path, _NOW).leftovers())


def test_a_kernel_without_a_row_is_not_read_by_taichi(tmp_path: Path) -> None:
    """It is worth knowing, and written anew."""
    put(tmp_path)
    (tmp_path / "ticache.tcb").write_bytes(index_bytes())
    cache, entry = _only(tmp_path)
    assert kinds(cache.check(entry)) == [FindingKind.ORPHAN]


def test_an_index_that_does_not_read_is_removed_by_a_repair(tmp_path: Path) -> None:
    """Taichi takes the cache for an empty one until then."""
    put(tmp_path)
    (tmp_path / "ticache.tcb").write_bytes(index_bytes(key(0))[:-4])
    cache = opened(SYSTEM, tmp_path, _NOW)
    (checked,) = cache.leftovers()
    assert kinds(checked) == [FindingKind.CORRUPT]
    assert cache.repair(checked, None).findings[0].repaired and not (tmp_path / "ticache.tcb").exists()


def test_nothing_is_removed_while_taichis_lock_is_there(tmp_path: Path) -> None:
    """A program may be reading the index; the lock says nothing of who made it."""
    put(tmp_path)
    (tmp_path / "ticache.lock").touch()
    cache, entry = _only(tmp_path)
    kept = cache.remove(entry, "test")
    assert isinstance(kept, Kept) and "ticache.lock" in kept.reason
    assert (tmp_path / f"T{key(0)}.tic").exists() and (tmp_path / "ticache.lock").exists()


@pytest.mark.parametrize(("age_ns", "found"), [(HOUR_NS // 2, 0), (2 * HOUR_NS, 1)])
def test_a_lock_that_a_dead_program_left_is_found_and_removed(
    age_ns: int, found: int, tmp_path: Path
) -> None:
    """No process holds it for an hour; while it is there Taichi keeps nothing."""
    put(tmp_path)
    (tmp_path / "ticache.lock").touch()
    os.utime(tmp_path / "ticache.lock", ns=(_NOW - age_ns, _NOW - age_ns))
    cache = opened(SYSTEM, tmp_path, _NOW)
    told = list(cache.leftovers())
    assert [kinds(one) for one in told] == found * [[FindingKind.LOCKED]]
    for one in told:
        assert cache.repair(one, None).findings[0].repaired
    assert (tmp_path / "ticache.lock").exists() is not bool(found)


@given(st.binary(max_size=200))
def test_no_bytes_are_read_beyond_their_end(data: bytes) -> None:
    """An index reads, or is refused with a sentence."""
    for one in (data, index_bytes(key(0), key(1))[: len(data)], index_bytes(key(0)) + data):
        with suppress(FormatError):
            assert len(TaichiIndex.read(one).rows) <= len(one)


def test_entries_of_another_version_are_not_here_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taichi 1.7.4 does not read the index of 1.7.3, though both name a kernel's file alike."""
    put(tmp_path / "there")
    there = opened(SYSTEM, tmp_path / "there")
    packed = [there.pack(entry) for entry in there.scan()]
    put(tmp_path / "here")
    index = tmp_path / "here" / "ticache.tcb"
    data = bytearray(index.read_bytes())
    struct.pack_into("<H", data, 12, 3)
    index.write_bytes(data)
    monkeypatch.setattr("gpucache.caches.interpreters.versions_of", lambda _: frozenset({"1.7.4"}))
    (done,) = opened(SYSTEM, tmp_path / "here").restore(packed)
    assert (done.done, done.present) == (False, False) and "another version of Taichi" in done.reason
    data[12] = 4
    index.write_bytes(data)
    (done,) = opened(SYSTEM, tmp_path / "here").restore(packed)
    assert done.present
