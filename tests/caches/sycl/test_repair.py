"""Repair: afterwards programs get to everything that is sound, and to nothing else."""

import os
from pathlib import Path

from gpucache.answers.entries import FindingKind
from tests.caches.sycl.build import (
    Made,
    copy,
    findings,
    kernel_folder,
    lock,
    opened,
    put,
    repaired,
    snapshot,
    spirv,
    told,
    verified,
)


def _all_repaired(root: Path) -> bool:
    return all(finding.repaired for checked in repaired(root) for finding in checked.findings)


def test_a_hole_is_closed(tmp_path: Path) -> None:
    """The entry moves to 0 with its time."""
    folder = put(tmp_path, number=3)

    assert _all_repaired(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["0.bin", "0.src", "0_access_time.txt"]
    assert (folder / "0.bin").read_bytes() == Made().binary
    assert told(tmp_path) == []


def test_the_lowest_sound_copy_stays(tmp_path: Path) -> None:
    """Damaged ones below it and copies above it go."""
    folder = put(tmp_path)
    for number in (1, 2, 3):
        copy(folder, 0, number)
    os.truncate(folder / "0.bin", 40)
    os.truncate(folder / "1.src", 40)
    kept = (folder / "2.bin").stat().st_ino

    assert _all_repaired(tmp_path)
    assert (folder / "0.bin").stat().st_ino == kept
    assert len(list(folder.iterdir())) == 3
    assert told(tmp_path) == []


def test_old_locks_are_broken(tmp_path: Path) -> None:
    """The entry under one is reached again."""
    folder = put(tmp_path)
    lock(folder / "0.lock")
    lock(folder / "7.lock")

    assert _all_repaired(tmp_path)
    assert list(folder.glob("*.lock")) == []
    assert told(tmp_path) == []


def test_a_folder_with_a_young_lock_is_left(tmp_path: Path) -> None:
    """Also the damage beside it."""
    folder = put(tmp_path, number=1)
    lock(folder / "0.lock", age_s=5)
    before = snapshot(tmp_path)

    assert not _all_repaired(tmp_path)
    assert snapshot(tmp_path) == before


def test_an_entry_in_the_wrong_folder_goes(tmp_path: Path) -> None:
    """With the folders that became empty; no program looked for it there."""
    folder = put(tmp_path)
    (folder / "0.src").write_bytes(Made(options=b"other").source)

    assert _all_repaired(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_link_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    """Nothing outside the root is touched."""
    outside = tmp_path / "outside"
    outside.write_bytes(Made().binary)
    folder = put(tmp_path / "cache")
    (folder / "0.bin").unlink()
    (folder / "0.bin").symlink_to(outside)

    assert _all_repaired(tmp_path / "cache")
    assert outside.read_bytes() == Made().binary
    assert told(tmp_path / "cache") == []


def test_a_wrong_mode_is_for_people_to_change(tmp_path: Path) -> None:
    """The entry stays, and so does the finding."""
    folder = put(tmp_path)
    (folder / "0.bin").chmod(0o666)

    assert not _all_repaired(tmp_path)
    assert [finding.kind for finding in findings(tmp_path)] == ["untrusted"]


def test_the_size_follows_what_was_dropped(tmp_path: Path) -> None:
    """By as much as the entry took."""
    folder = put(tmp_path)
    copy(folder, 0, 1)
    entry = len(Made().binary) + len(Made().source)
    (tmp_path / "cache_size.txt").write_text(str(2 * entry + 7))

    assert _all_repaired(tmp_path)
    assert (tmp_path / "cache_size.txt").read_text() == str(entry + 7)


def test_a_time_that_is_none_is_written_anew(tmp_path: Path) -> None:
    """From when the entry was made."""
    folder = put(tmp_path)
    (folder / "0_access_time.txt").write_text("now")

    assert _all_repaired(tmp_path)
    assert (folder / "0_access_time.txt").read_text() == str((folder / "0.bin").stat().st_mtime_ns)


def test_kernel_compiler_copies_are_reduced_to_one(tmp_path: Path) -> None:
    """One folder has one key, so only the first that is sound is ever served."""
    folder = kernel_folder(tmp_path)
    (folder / "0.bin").write_bytes(Made().binary[:-3])
    (folder / "1.bin").write_bytes(Made().binary)
    (folder / "2.bin").write_bytes(Made().binary)

    assert _all_repaired(tmp_path)
    assert [path.name for path in folder.iterdir()] == ["0.bin"]
    assert (folder / "0.bin").read_bytes() == Made().binary


def test_ir_keeps_its_name(tmp_path: Path) -> None:
    """It has no number."""
    folder = tmp_path / "ext_kernel_compiler" / ("A" * 43 + "=")
    folder.mkdir(parents=True)
    (folder / "ir.bin").write_bytes(Made(compiled=b"BC\xc0\xde" + bytes(8)).binary)
    lock(folder / "ir.lock")

    assert _all_repaired(tmp_path)
    assert [path.name for path in folder.iterdir()] == ["ir.bin"]


def test_twice_changes_nothing_more(tmp_path: Path) -> None:
    """Repair of a repaired cache is a walk."""
    put(tmp_path, number=2)
    put(tmp_path, Made(image=spirv("other")))
    repaired(tmp_path)
    before = snapshot(tmp_path)

    assert repaired(tmp_path) == []
    assert snapshot(tmp_path) == before


def test_what_others_add_to_an_entry_is_not_marked(tmp_path: Path) -> None:
    """An entry of another driver stays stale."""
    folder = put(tmp_path)
    lock(folder / "0.lock")
    cache = opened(tmp_path)
    ((checked, entry),) = verified(cache)
    stale = checked.findings[0]._replace(kind=FindingKind.STALE)

    marked = cache.repair(checked._replace(findings=(*checked.findings, stale)), entry)

    assert [finding.repaired for finding in marked.findings] == [True, False]


def test_a_root_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """What it holds could change under the repair."""
    root = tmp_path / "cache"
    put(root, number=1)
    root.chmod(0o777)

    told = [finding for one in repaired(root) for finding in one.findings]
    assert not any(finding.repaired for finding in told)
    assert any("is not repaired" in finding.detail for finding in told)


def test_a_large_number_costs_no_more_than_a_small_one(tmp_path: Path) -> None:
    """Numbers are not counted up to."""
    folder = put(tmp_path, number=4_000_000_000)

    assert _all_repaired(tmp_path)
    assert (folder / "0.bin").exists()


def test_links_that_libsycl_does_not_name_stay(tmp_path: Path) -> None:
    """They are somebody's, wherever in a cache they lie, and stay unrepaired."""
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "cache"
    folder = put(root)
    links = [place / "photos" for place in (root, folder, folder.parent)]
    for link in links:
        link.symlink_to(outside)

    assert not _all_repaired(root)
    assert all(link.is_symlink() for link in links)


def test_a_link_in_place_of_a_hash_goes(tmp_path: Path) -> None:
    """It leads programs out of the cache."""
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "cache"
    put(root)
    (root / "807247836371013825").symlink_to(outside)

    assert _all_repaired(root)
    assert outside.is_dir()
    assert not (root / "807247836371013825").is_symlink()
