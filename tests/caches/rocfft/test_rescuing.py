"""Damaged databases made anew of their sound rows."""

from pathlib import Path

import pytest

from tests.caches.rocfft.build import code, database, file_findings, opened, row, row_findings

_TABLE_LEAF, _INDEX_LEAF = 0x0D, 0x0A


def _page_of(data: bytearray, name: bytes, kind: int) -> int:
    """Where the page of a kind begins that has a kernel's name."""
    starts = range(4096, len(data), 4096)
    return next(start for start in starts if data[start] == kind and name in data[start : start + 4096])


@pytest.mark.parametrize(("kind", "least", "most"), [(_TABLE_LEAF, 190, 199), (_INDEX_LEAF, 200, 200)])
def test_the_sound_rows_of_a_database_with_a_bad_page_are_saved(
    tmp_path: Path, kind: int, least: int, most: int
) -> None:
    """A new database of them takes the place of the damaged one, which is kept beside it."""
    path = tmp_path / "rocfft_kernel_cache.db"
    rows = [row(f"kernel_{number:04}", data=code(size=1000), seconds=number + 5) for number in range(200)]
    database(path, rows)
    data = bytearray(path.read_bytes())
    leaf = _page_of(data, b"kernel_0100", kind)
    data[leaf : leaf + 4096] = b"\xa5" * 4096
    path.write_bytes(data)
    path.chmod(0o640)
    cache = opened(path)
    (checked,) = cache.leftovers()
    (finding,) = cache.repair(checked, None).findings
    aside = tmp_path / "rocfft_kernel_cache.db.corrupt"
    saved = len(list(cache.scan()))
    assert least <= saved <= most
    assert finding.repaired
    assert f"{saved} rows were saved into a new database at {path}" in finding.detail
    assert str(aside) in finding.detail
    assert aside.read_bytes() == bytes(data)
    assert file_findings(path) == row_findings(path) == []
    assert {entry.created_ns for entry in cache.scan()} <= {(number + 5) * 10**9 for number in range(200)}
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(item.name for item in tmp_path.iterdir()) == [path.name, aside.name]


def test_where_nothing_can_be_read_the_place_is_named(tmp_path: Path) -> None:
    """A file that no row can be read of is moved, and its new place is told."""
    path = tmp_path / "rocfft_kernel_cache.db"
    database(path, [row(data=code(size=30_000))])
    path.write_bytes(path.read_bytes()[:9000])
    cache = opened(path)
    (checked,) = cache.leftovers()
    (finding,) = cache.repair(checked, None).findings
    assert f"no row could be read, and it is {path}.corrupt now" in finding.detail
