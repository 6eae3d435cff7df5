"""Files laid by the rules of Mesa's shader cache, and what is said of those that break them."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from tests.caches.mesa.build import DRIVER, GPU, PACKED, database, file_bytes, key, put
from tests.caches.opened import kinds

SYSTEM = of_others("mesa")


def _opened(root: Path) -> Cache:
    return SYSTEM.open(Location("mesa", str(root), "--cache", enabled=True))


@pytest.mark.parametrize("keys", [None, 0, 3])
def test_an_entry_says_its_driver_and_gpu(keys: int | None, tmp_path: Path) -> None:
    """Whether it names other keys or not."""
    put(tmp_path, data=file_bytes(keys=keys))
    cache = _opened(tmp_path)
    (entry,) = cache.scan()
    assert (entry.key, entry.target, entry.toolchain) == (key(0), GPU, (("driver", DRIVER),))
    assert not cache.check(entry).findings and cache.extract(entry) == PACKED


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", FindingKind.TRUNCATED),
        (b"garbage", FindingKind.MISLABELLED),
        (file_bytes()[:-1], FindingKind.CORRUPT),
        (file_bytes()[:-1] + b"x", FindingKind.CORRUPT),
    ],
)
def test_a_repair_removes_a_damaged_entry_and_its_size_from_the_sum(
    data: bytes, kind: FindingKind, tmp_path: Path
) -> None:
    """Mesa evicts by that sum."""
    other = put(tmp_path, 1)
    path = put(tmp_path, data=data)
    cache = _opened(tmp_path)
    (entry,) = cache.find(key(0))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and "compiles it again" in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()
    total = int.from_bytes((tmp_path / "index").read_bytes()[:8], sys.byteorder)
    assert total == 512 * other.stat().st_blocks and len((tmp_path / "index").read_bytes()) == 64


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flipped(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


def _of_another(path: Path) -> None:
    index = path.with_suffix(".idx")
    index.write_bytes(index.read_bytes()[:-1] + b"\xff")


@pytest.mark.parametrize("damage", [_cut, _flipped, _of_another])
def test_a_database_is_one_entry_that_is_checked_and_stays(damage: object, tmp_path: Path) -> None:
    """Only Mesa can take rows out of it."""
    path = database(tmp_path, b"first", b"second")
    cache = _opened(tmp_path)
    (entry,) = cache.scan()
    assert entry.artifact_kind == "database" and "as a whole" in entry.stays
    assert not cache.check(entry).findings
    assert callable(damage)
    damage(path)
    (entry,) = cache.scan()
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.CORRUPT] and "begins anew" in checked.findings[0].detail


def test_every_form_that_is_there_is_a_place(tmp_path: Path) -> None:
    """A driver keeps one of three, and variables choose which."""
    environ = {"MESA_SHADER_CACHE_DIR": str(tmp_path)}
    (before,) = SYSTEM.locations(environ)
    (tmp_path / "mesa_shader_cache_db").mkdir()
    (tmp_path / "mesa_shader_cache_sf").mkdir()
    after = [Path(one.root).name for one in SYSTEM.locations(environ)]
    assert Path(before.root).name == "mesa_shader_cache" and not before.enabled
    assert after == ["mesa_shader_cache_db", "mesa_shader_cache_sf"]


def test_home_does_not_move_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mesa asks for the user's record, whatever HOME is."""
    monkeypatch.setattr("gpucache.caches.places._on_record", lambda _: "/record")
    first, *_ = SYSTEM.locations({"HOME": str(tmp_path)})
    assert first.decided_by == "the user's record" and not Path(first.root).is_relative_to(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_judged(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever an entry or a database holds, a check ends."""
    root = tmp_path_factory.mktemp("mesa")
    put(root, 0, data)
    database(root).write_bytes(data)
    cache = _opened(root)
    for entry in cache.scan():
        cache.check(entry)
