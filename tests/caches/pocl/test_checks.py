"""The findings of verify in PoCL's programs, and their repair."""

import struct
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.answers.verify import Checked
from tests.caches.pocl import build
from tests.payload.build import bitcode, library, shared_library


def _check(root: Path, now_ns: int = build.NOW) -> Checked:
    cache = build.cache(root, now_ns)
    [entry] = cache.scan()
    return cache.check(entry)


def _repair(root: Path) -> Checked:
    cache = build.cache(root)
    [entry] = cache.scan()
    return cache.repair(cache.check(entry), entry)


def _kernel(folder: Path, name: str = "vecadd") -> Path:
    return folder / name / build.SMALL / f"{name}.so"


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (b"", FindingKind.TRUNCATED, "CL_INVALID_KERNEL_NAME"),
        (bitcode()[:-44], FindingKind.TRUNCATED, "PoCL never replaces it"),
        (bitcode()[:-3], FindingKind.TRUNCATED, "PoCL never replaces it"),
        (bytes(3000), FindingKind.CORRUPT, "does not begin"),
    ],
)
def test_a_damaged_program_is_wrong_and_goes_whole(
    tmp_path: Path, content: bytes, kind: FindingKind, words: str
) -> None:
    """Bitcode that does not read is told with its consequence; its folder is removed with all kernels."""
    folder = build.program(tmp_path)
    (folder / "program.bc").write_bytes(content)
    [finding] = _check(tmp_path).findings
    assert finding.kind is kind
    assert words in finding.detail
    [finding] = _repair(tmp_path).findings
    assert finding.repaired
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("what", ["program.bc", f"vecadd/{build.SMALL}/vecadd.so"])
def test_a_directory_in_place_of_a_file_is_told_and_moved_away(what: str, held: bool, tmp_path: Path) -> None:
    """Every program that needs it fails; what a user has in it is kept."""
    path = build.program(tmp_path) / what
    path.unlink()
    path.mkdir()
    if held:
        (path / "diary.txt").write_text("mine")
    build.age(tmp_path, build.NOW - build.DAY)
    told = [one for one in _repair(tmp_path).findings if "in place of a file" in one.detail]
    assert [(one.kind, one.repaired) for one in told] == [("corrupt", True)]
    assert not path.exists() and len(list(tmp_path.rglob("diary.txt"))) == held


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (b"", FindingKind.TRUNCATED, "empty"),
        (library()[:-30], FindingKind.TRUNCATED, "ends at byte"),
        (b"garbage" * 100, FindingKind.CORRUPT, "is not a whole library"),
        (bytes(13_000), FindingKind.CORRUPT, "is not a whole library"),
        (library("twice"), FindingKind.MISLABELLED, "contains kernel twice instead of vecadd"),
        (library(machine=183), FindingKind.MISLABELLED, "another machine"),
        (library(comment=b"clang version 14.0.6\0"), FindingKind.MISLABELLED, "by clang 14.0.6"),
    ],
)
def test_a_wrong_kernel_is_told_and_goes_alone(
    tmp_path: Path, content: bytes, kind: FindingKind, words: str
) -> None:
    """A kernel that cannot be its program's is removed; program and other kernels stay."""
    folder = build.program(tmp_path, kernels=["vecadd", "rev"])
    _kernel(folder).write_bytes(content)
    [finding] = _check(tmp_path).findings
    assert finding.kind is kind
    assert words in finding.detail
    [finding] = _repair(tmp_path).findings
    assert finding.repaired
    assert not _kernel(folder).exists()
    assert _kernel(folder, "rev").exists()
    assert _check(tmp_path).findings == ()


def test_a_jit_object_is_checked_like_a_library(tmp_path: Path) -> None:
    """Newer PoCLs keep object files, whose names are in another table."""
    folder = build.program(tmp_path)
    place = _kernel(folder).with_suffix(".o")
    _kernel(folder).rename(place)
    place.write_bytes(library(kind=1))
    assert _check(tmp_path).findings == ()
    place.write_bytes(library("twice", kind=1))
    assert [one.kind for one in _check(tmp_path).findings] == [FindingKind.MISLABELLED]


def test_a_program_without_any_of_its_compiled_kernels_is_another_entrys(tmp_path: Path) -> None:
    """Swapped bitcode is found by the kernels next to it, and a repair removes the entry."""
    folder = build.program(tmp_path)
    (folder / "program.bc").write_bytes(bitcode(["other"]))
    [finding] = _repair(tmp_path).findings
    assert (finding.kind, finding.repaired) == (FindingKind.MISLABELLED, True)
    assert not folder.exists()


def test_a_library_that_the_loader_takes_is_sound(tmp_path: Path) -> None:
    """The loader does not parse the section table, at which a library ends."""
    folder = build.program(tmp_path)
    data = bytearray(shared_library("<", 64))
    struct.pack_into("<Q", data, 40, len(data))
    struct.pack_into("<HHH", data, 58, 64, 1, 0)
    _kernel(folder).write_bytes(data + bytes(63))
    assert _check(tmp_path).findings == ()


@pytest.mark.parametrize("name", ["program.bc_a1B2c3.temp", f"vecadd/{build.SMALL}/vecadd.so.o"])
def test_files_of_the_compiler_are_leftovers_once_they_are_old(tmp_path: Path, name: str) -> None:
    """Temporary and intermediate files are left alone while young, and removed when older than an hour."""
    folder = build.program(tmp_path)
    (folder / name).write_bytes(b"object")
    made = build.NOW - 59 * build.MINUTE
    build.age(tmp_path, made)
    assert _check(tmp_path).findings == ()
    build.age(tmp_path, build.NOW - 61 * build.MINUTE)
    [finding] = _repair(tmp_path).findings
    assert (finding.kind, finding.repaired) == (FindingKind.LEFTOVER, True)
    assert not (folder / name).exists()
