"""Files laid by the rules of Intel's compiler cache, and what is said of those that break them."""

from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.intel_neo.build import BINARY, key, put
from tests.caches.opened import kinds, opened

SYSTEM = of_others("intel-neo")


def test_a_binary_is_found_flat_and_in_folders(tmp_path: Path) -> None:
    """Older drivers kept all files in one folder."""
    put(tmp_path)
    (tmp_path / f"{key(1)}.l0_cache").write_bytes(BINARY)
    cache = opened(SYSTEM, tmp_path)
    found = {entry.key: entry.artifact_kind for entry in cache.scan()}
    assert found == {key(0): "intel-gpu", key(1): "intel-gpu"}
    assert not [one for entry in cache.scan() for one in cache.check(entry).findings]


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", FindingKind.TRUNCATED, "compiles it again"),
        (BINARY[:-9], FindingKind.CORRUPT, "at every start"),
        (b"garbage", FindingKind.MISLABELLED, "at every start"),
    ],
)
def test_a_repair_removes_a_damaged_binary_and_its_size_from_the_sum(
    data: bytes, kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """The driver evicts by that sum, which a removal by hand would make wrong."""
    put(tmp_path, 1)
    path = put(tmp_path, data=data)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(key(0))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()
    assert int.from_bytes((tmp_path / "config.file").read_bytes(), "little") == len(BINARY)


def test_a_binary_of_the_older_format_is_not_judged(tmp_path: Path) -> None:
    """Of what gpucache cannot read it does not say that it is broken."""
    put(tmp_path, data=b"CTNI" + bytes(40))
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.scan()
    assert not cache.check(entry).findings and entry.damage is None


def test_a_held_lock_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver's lock guards stays, and the second entry does not wait as the first did."""
    fcntl = pytest.importorskip("fcntl")
    paths = [put(tmp_path, number) for number in range(2)]
    pauses: list[float] = []
    monkeypatch.setattr("gpucache.caches.files.time.sleep", pauses.append)
    cache = opened(SYSTEM, tmp_path)
    first, second = cache.scan()
    with (tmp_path / "config.file").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kept = cache.remove(first, "test")
        waited = len(pauses)
        assert kept is not None and "lock is held" in kept.reason and waited
        assert cache.remove(second, "test") is not None and len(pauses) == waited
    assert all(path.exists() for path in paths)
