"""Files laid by the rules of clesperanto's kernel cache, and what is said of those that break them."""

import os
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.clesperanto.build import put
from tests.caches.opened import PTX, kinds, only, opened

SYSTEM = of_others("clesperanto")


def test_a_kernel_says_its_names_its_version_and_what_it_is(tmp_path: Path) -> None:
    """The digits of its name begin its key."""
    put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find("abcd0000")
    assert (entry.program, entry.artifact_kind, entry.producer) == ("scale", "ptx", "CLIc 0.25.1-r4")
    assert not cache.check(entry).findings and cache.extract(entry) == PTX


def test_kernels_of_older_versions_are_entries(tmp_path: Path) -> None:
    """Hashes were decimal then."""
    folder = tmp_path / "15873529837236726384"
    folder.mkdir()
    (folder / "9127393749873924872.bin").write_bytes(PTX)
    assert only(opened(SYSTEM, tmp_path)).key.startswith(f"{9127393749873924872:016x}")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", FindingKind.TRUNCATED),
        (PTX[:-3], FindingKind.CORRUPT),
        (b"garbage", FindingKind.MISLABELLED),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    data: bytes, kind: FindingKind, tmp_path: Path
) -> None:
    """A repair removes the file, and leaves the others."""
    other, path = put(tmp_path, 1), put(tmp_path, data=data)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find("abcd000000000000")
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and "at every start" in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired
    assert not path.exists() and other.exists()


def test_what_a_stopped_writer_left_is_cleared(tmp_path: Path) -> None:
    """An empty file with the name of one that is being written, once it is old."""
    path = put(tmp_path)
    left = path.with_name(f"{path.name}.tmp10974441755598700639_0")
    left.touch()
    os.utime(left, (1, 1))
    cache = opened(SYSTEM, tmp_path)
    (checked,) = cache.leftovers()
    assert cache.repair(checked, None).findings[0].repaired and not left.exists() and path.exists()


def test_any_value_of_its_variable_turns_it_off(tmp_path: Path) -> None:
    """clesperanto asks whether it is set, and for nothing else than HOME."""
    for value in ("1", "0", ""):
        (location,) = SYSTEM.locations({"HOME": str(tmp_path), "CLESPERANTO_NO_CACHE": value})
        assert not location.enabled and "turns the cache off" in location.problems[0]
    (tmp_path / ".cache" / "clesperanto").mkdir(parents=True)
    (location,) = SYSTEM.locations({"HOME": str(tmp_path), "XDG_CACHE_HOME": "/elsewhere"})
    assert location.enabled and location.root == str(tmp_path / ".cache" / "clesperanto")


def test_a_stranger_whose_name_has_two_lines_is_told_on_one(tmp_path: Path) -> None:
    """A finding is one line even if the file's name has two."""
    below = put(tmp_path).with_name("a\nb")
    for path in (below, tmp_path / "c\nd"):
        path.touch()
    details = [one.findings[0].detail for one in opened(SYSTEM, tmp_path).leftovers()]
    assert len(details) == 2 and not [one for one in details if "\n" in one]
