"""What checking an entry finds, and the consequence it tells."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.sycl import tree
from gpucache.engine.eviction_policy import superseded
from gpucache.folders import Folder
from tests.caches.sycl.build import (
    DEVICE,
    Made,
    collide,
    copy,
    framed,
    kernel_folder,
    lock,
    opened,
    put,
    spirv,
    told,
    verified,
)

_INTEL = b"Intel(R) OpenCL/Some CPU/OpenCL 3.0/1"


def _trailing_source(folder: Path) -> None:
    (folder / "0.src").write_bytes((folder / "0.src").read_bytes() + b"abc")


def _trailing_binary(folder: Path) -> None:
    (folder / "0.bin").write_bytes((folder / "0.bin").read_bytes() + b"abc")


def _other_options(folder: Path) -> None:
    (folder / "0.src").write_bytes(Made(options=b"-cl-slow").source)


def _two_claimed(folder: Path) -> None:
    (folder / "0.bin").write_bytes((2).to_bytes(8, "little") + Made().binary[8:])


def _broken_payload(folder: Path) -> None:
    (folder / "0.bin").write_bytes((1).to_bytes(8, "little") + framed(spirv("k")[:-2]))


def _no_time(folder: Path) -> None:
    (folder / "0_access_time.txt").write_text("yesterday")


def _written_by_all(folder: Path) -> None:
    (folder / "0.bin").chmod(0o666)


def _a_folder(folder: Path) -> None:
    (folder / "0.bin").unlink()
    (folder / "0.bin").mkdir()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_trailing_source, "corrupt: 3 bytes that nobody reads follow the images"),
        (_trailing_binary, "corrupt: 3 B that nobody reads follow the binary"),
        (_other_options, "misplaced: its build options do not hash to the folder"),
        (_two_claimed, "corrupt: its .bin claims 2 binaries and holds 1"),
        (_broken_payload, "the driver's error reaches the application"),
        (_no_time, "orphan: 0_access_time.txt holds no time"),
        (_written_by_all, "untrusted: 0.bin: others may write to it"),
        (_a_folder, "untrusted: 0.bin is not a regular file"),
    ],
)
def test_a_damaged_entry_says_how(damage: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    """One finding, of its kind."""
    damage(put(tmp_path))

    (said,) = told(tmp_path)

    assert words in said


def test_every_flipped_byte_of_a_source_is_seen(tmp_path: Path) -> None:
    """The folders' names are a checksum of it."""
    folder = put(tmp_path, Made(spec=b"ab"))
    data = (folder / "0.src").read_bytes()
    for place in range(len(data)):
        (folder / "0.src").write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        assert told(tmp_path), f"byte {place}"


def test_a_payload_of_another_platform_is_mislabelled(tmp_path: Path) -> None:
    """Intel's CPU runtime makes ELF files."""
    put(tmp_path, Made(device=_INTEL, compiled=bytes(64)))

    assert any(said.startswith("mislabelled: ") and "Intel(R) OpenCL" in said for said in told(tmp_path))


def test_a_compressed_bundle_is_not_searched_for_kernels(tmp_path: Path) -> None:
    """The names in it are compressed, so that they are not there does not make it another entry's."""
    put(tmp_path, Made(compiled=b"CCOB" + bytes(60)))

    assert not any("has no kernel" in said for said in told(tmp_path))


def test_the_binary_of_another_entry_is_mislabelled(tmp_path: Path) -> None:
    """It lacks the kernels of the images beside it, and programs die when they ask it for one."""
    put(tmp_path, Made(compiled=spirv("second_kernel", words=20)))
    (finding,) = [one for checked, _ in verified(opened(tmp_path)) for one in checked.findings]

    assert finding.kind is FindingKind.MISLABELLED
    assert "no kernel first_kernel" in finding.detail


def test_a_payload_of_an_unknown_kind_is_a_note_elsewhere(tmp_path: Path) -> None:
    """What an unknown platform makes cannot be judged."""
    put(tmp_path, Made(compiled=bytes(64)))
    cache = opened(tmp_path)
    (entry,) = cache.scan()

    checked = cache.check(entry)

    assert (checked.findings, len(checked.notes)) == ((), 1)


def test_folders_of_another_hash_are_not_compared(tmp_path: Path) -> None:
    """Other standard libraries name them otherwise: that is a note."""
    put(tmp_path / "a")
    for folder in sorted((tmp_path / "a").rglob("*"), reverse=True):
        if folder.is_dir():
            folder.rename(folder.with_name(str(int(folder.name) ^ 1)))
    cache = opened(tmp_path / "a")
    (entry,) = cache.scan()

    checked = cache.check(entry)

    assert checked.findings == ()
    assert "another hash" in checked.notes[0]


def test_a_copy_is_superseded_by_the_lowest(tmp_path: Path) -> None:
    """Processes that start at once each write one."""
    folder = put(tmp_path)
    copy(folder, 0, 1)
    copy(folder, 0, 2)

    assert (
        sorted(told(tmp_path))
        == ["superseded: it is a copy of 0, which programs take; it only takes room"] * 2
    )


def test_only_the_later_copy_is_superseded(tmp_path: Path) -> None:
    """Programs take the lowest, so it is no older version of the others."""
    copy(put(tmp_path), 0, 1)
    os.utime(next(tmp_path.rglob("0.bin")), (1, 1))

    assert superseded(opened(tmp_path).scan()) == frozenset()


def test_an_entry_of_another_driver_is_still_an_older_version(tmp_path: Path) -> None:
    """That is what the rule is for."""
    put(tmp_path, Made(device=DEVICE.replace(b"1.2.3", b"1.2.2")))
    put(tmp_path)

    assert len(superseded(opened(tmp_path).scan())) == 1


def test_collisions_are_no_copies(tmp_path: Path) -> None:
    """Their keys differ; here they do not fit their folder, which is all that is said."""
    collide(tmp_path, 2)

    assert not any("superseded" in said for said in told(tmp_path))


def test_a_copy_behind_a_damaged_one_is_not_reached(tmp_path: Path) -> None:
    """Programs take the first whose key fits, and look no further."""
    folder = put(tmp_path)
    copy(folder, 0, 1)
    os.truncate(folder / "0.bin", 20)

    said = told(tmp_path)

    assert any("truncated: " in one and "adds one at every run" in one for one in said)
    assert any("misplaced: programs take 0 for it, which is damaged" in one for one in said)


def test_a_copy_behind_one_that_is_passed_over_is_reached(tmp_path: Path) -> None:
    """An absurd length in a .bin is caught by libsycl, which then tries the next."""
    folder = put(tmp_path)
    copy(folder, 0, 1)
    (folder / "0.bin").write_bytes(bytes(8) + (1 << 62).to_bytes(8, "little"))

    assert [one.partition(":")[0] for one in told(tmp_path)] == ["corrupt"]


def test_nothing_is_reached_behind_one_that_kills(tmp_path: Path) -> None:
    """std::bad_alloc leaves the application."""
    folder = put(tmp_path)
    copy(folder, 0, 1)
    (folder / "0.src").write_bytes((1 << 60).to_bytes(8, "little") + bytes(40))

    assert any("misplaced: programs die of 0 before they get to 1" in said for said in told(tmp_path))


def test_an_entry_under_an_old_lock_is_passed_over(tmp_path: Path) -> None:
    """That no program reads it is wrong, and told once, with all that comes of it."""
    lock(put(tmp_path) / "0.lock")

    (wrong,) = told(tmp_path)

    assert wrong.startswith("misplaced: 0.lock is 1 h old")
    assert "programs pass this entry over" in wrong and "eviction spins on it for ever" in wrong
    assert wrong.endswith("; 'gpucache verify --cache sycl --repair' removes it")


@pytest.mark.parametrize(("age_s", "kind"), [(3600, "misplaced"), (5, "locked")])
def test_a_scan_tells_of_a_lock_what_a_check_does(age_s: float, kind: str, tmp_path: Path) -> None:
    """In the same words, and what is being written is not called truncated."""
    folder = put(tmp_path)
    lock(folder / "0.lock", age_s=age_s)
    if kind == "locked":
        os.truncate(folder / "0.bin", 20)

    (entry,) = opened(tmp_path).scan()

    assert str(entry.damage).startswith(f"{kind}: ")
    assert str(entry.damage) in told(tmp_path)


def test_an_entry_under_a_young_lock_is_left_alone(tmp_path: Path) -> None:
    """A program may be writing it: it is not called truncated."""
    folder = put(tmp_path)
    os.truncate(folder / "0.bin", 20)
    lock(folder / "0.lock", age_s=5)

    (said,) = told(tmp_path)

    assert said.startswith("locked: 0.lock is less than 10 min old, so a program may hold it")
    assert said.endswith("wait, or remove 0.lock by hand once no program runs")


def test_an_entry_behind_a_hole_with_a_lock_is_never_reached(tmp_path: Path) -> None:
    """A killed writer's lock keeps the hole open."""
    folder = put(tmp_path, number=1)
    lock(folder / "0.lock")

    assert any(
        "as 0.lock keeps it free, they add another copy at every run" in said for said in told(tmp_path)
    )


def test_halves_are_orphans(tmp_path: Path) -> None:
    """Each with what programs do about it."""
    (put(tmp_path, Made(image=spirv("a"))) / "0.src").unlink()
    (put(tmp_path, Made(image=spirv("b"))) / "0.bin").unlink()

    assert sorted(told(tmp_path)) == [
        "orphan: 0.bin has no .src, so programs pass it over and keep another copy beside it",
        "orphan: 0.src has no .bin: programs miss and write it again",
    ]


def test_an_entry_without_a_time_counts_where_eviction_is_used(tmp_path: Path) -> None:
    """Versions that did not evict wrote none."""
    folder = put(tmp_path)
    (folder / "0_access_time.txt").unlink()
    assert told(tmp_path) == []

    (tmp_path / "cache_size.txt").write_text("1")

    assert told(tmp_path) == ["orphan: 0_access_time.txt is missing, so libsycl never evicts the entry"]


def test_kernel_compiler_entries_cannot_be_held_against_their_key(tmp_path: Path) -> None:
    """That is said, and their binary is checked all the same."""
    folder = kernel_folder(tmp_path)
    (folder / "0.bin").write_bytes(Made().binary)
    (folder / "1.bin").write_bytes(Made().binary[:-1])

    (first, _), (second, _) = sorted(verified(opened(tmp_path)), key=lambda item: item[0].entry)

    assert "stores no key" in first.notes[0]
    assert first.findings == ()
    assert [finding.kind for finding in second.findings] == ["truncated", "superseded"]


def test_a_folder_at_rest_is_listed_once_for_all_its_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And listed anew once it changed."""
    folder = put(tmp_path)
    for number in range(1, 6):
        copy(folder, 0, number)
    os.utime(folder, (1e9, 1e9))
    cache = opened(tmp_path)
    found = list(cache.scan())
    listed: list[Folder] = []
    listing = tree.listing

    def counting(place: Folder) -> tree.Listing:
        listed.append(place)
        return listing(place)

    monkeypatch.setattr(tree, "listing", counting)

    kinds = [finding.kind for entry in found for finding in cache.check(entry).findings]
    assert (kinds, len(listed)) == (["superseded"] * 5, 1)

    (folder / "0.bin").unlink()
    (folder / "0.src").unlink()
    assert [one.kind for one in cache.check(found[5]).findings] == ["misplaced"]
