"""Files laid by the rules of OpenVINO's model cache, and what is said of those that break them."""

from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.opened import PTX, kinds, only, opened
from tests.caches.openvino.build import content, older_content, put

SYSTEM = of_others("openvino")


def test_a_model_says_its_version_and_kernels_are_entries(tmp_path: Path) -> None:
    """The number of a file, in hex digits, begins its key."""
    path = put(tmp_path)
    entry = only(opened(SYSTEM, tmp_path))
    assert entry.key.startswith(f"{int(path.stem):016x}")
    assert (entry.artifact_kind, entry.target, entry.producer) == ("model", "cpu", "OpenVINO 2026.4.1-22982")
    (tmp_path / "9127393749873924872.cl_cache").write_bytes(PTX)
    assert sorted(one.artifact_kind for one in opened(SYSTEM, tmp_path).scan()) == ["model", "ptx"]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", FindingKind.TRUNCATED),
        (content()[:-1], FindingKind.TRUNCATED),
        (content()[:150], FindingKind.TRUNCATED),
        (older_content()[:-1], FindingKind.TRUNCATED),
        (b"<html>", FindingKind.MISLABELLED),
    ],
)
def test_damage_is_found_and_repaired(data: bytes, kind: FindingKind, tmp_path: Path) -> None:
    """A repair removes the file, and leaves the others."""
    other, path = put(tmp_path, 1), put(tmp_path, data=data)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(f"{int(path.stem):016x}")
    checked = cache.check(entry)
    assert kinds(checked) == [kind]
    assert cache.repair(checked, entry).findings[0].repaired
    assert not path.exists() and other.exists()


def test_a_model_of_an_older_version_is_sound(tmp_path: Path) -> None:
    """It is for the CPU by its table of parts."""
    put(tmp_path, data=older_content())
    entry = only(opened(SYSTEM, tmp_path))
    assert (entry.target, entry.damage) == ("cpu", None)
