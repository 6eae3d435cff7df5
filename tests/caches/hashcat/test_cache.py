"""Files laid by the rules of hashcat's kernel cache, and what is said of those that break them."""

from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.hashcat.build import put
from tests.caches.opened import PTX, kinds, opened

SYSTEM = of_others("hashcat")


def test_a_kernel_says_its_name_and_what_it_is(tmp_path: Path) -> None:
    """The digits of its name begin its key."""
    put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find("abcd0000")
    assert (entry.program, entry.artifact_kind) == ("m00000_a3-pure", "ptx")
    assert not cache.check(entry).findings and cache.extract(entry) == PTX


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", FindingKind.TRUNCATED, "builds it again"),
        (PTX[:-3], FindingKind.CORRUPT, "at every start"),
        (b"garbage", FindingKind.MISLABELLED, "at every start"),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    data: bytes, kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """A repair removes the file, and leaves the others."""
    put(tmp_path, 1)
    path = put(tmp_path, data=data)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find("abcd0000")
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()


def test_an_older_folder_in_the_home_folder_is_the_one_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hashcat takes ``~/.hashcat`` where that is there, below the home folder on record."""
    monkeypatch.setattr("gpucache.caches.places._home_on_record", lambda: str(tmp_path))
    (before,) = SYSTEM.locations({"HOME": "/elsewhere"})
    (tmp_path / ".hashcat" / "kernels").mkdir(parents=True)
    (after,) = SYSTEM.locations({"HOME": "/elsewhere"})
    assert before.root == str(tmp_path / ".cache/hashcat/kernels")
    assert after.root == str(tmp_path / ".hashcat/kernels")
