"""The names in PoCL's cache: hashes, kernels, local sizes, temporary files."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches import pocl as entry
from tests.caches.pocl import build


@given(st.binary(min_size=20, max_size=20))
def test_a_key_is_the_hash_without_its_fourth_digit(digest: bytes) -> None:
    """PoCL puts the slash over the letter of the fourth hex digit, and all others are kept in order."""
    letters = entry.letters_of(digest)
    assert entry.key_of(letters[:2], letters[3:]) == digest.hex()[:3] + digest.hex()[4:]


@given(st.binary(min_size=20, max_size=20))
def test_a_name_of_all_letters_gives_the_whole_hash(digest: bytes) -> None:
    """Where no letter was lost the key has all forty digits."""
    letters = entry.letters_of(digest)
    assert entry.key_of(letters[:2], letters[2:]) == digest.hex()


def test_a_real_name_gives_its_key() -> None:
    """A name that PoCL 3.0 made is read as published: low half first."""
    assert entry.key_of("OE", "PIDHCHGKEOCCFDBEBEDMPNDFPGMKJONKGOJOK").startswith("4ef3827674a2")


@pytest.mark.parametrize("name", ["OQ", "oe", "O", "OEP", "", "A1"])
def test_other_names_are_no_pairs(name: str) -> None:
    """Only two letters from A to P are the first part of a program's directory."""
    assert not entry.LAYOUT.key_at((name, "P" * 37))


@pytest.mark.parametrize(
    ("folder", "size", "words"),
    [
        ("64-1-1", "64x1x1", "64x1x1"),
        ("8-8-1-goffs0", "8x8x1", "8x8x1 (global offset 0 only)"),
        ("16-1-1-goffs0-smallgrid", "16x1x1", "16x1x1 (global offset 0, small grids only)"),
        ("16-1-1-smallgrid", "16x1x1", "16x1x1 (small grids only)"),
        ("0-0-0", "", "any local size"),
    ],
)
def test_a_variant_folder_tells_its_launches(folder: str, size: str, words: str) -> None:
    """Local size, global offset and grid are read from the directory's name."""
    variant = entry.variant_of("vecadd", folder)
    assert variant is not None
    assert (variant.local_size, variant.words) == (size, words)


@pytest.mark.parametrize(
    "folder", ["16-1", "16-1-1-big", "16-1-1-smallgrid-goffs0", "a-1-1", "\u0661-1-1", ""]
)
def test_other_folders_are_no_variants(folder: str) -> None:
    """A directory with a name that PoCL does not write is not a variant."""
    assert entry.variant_of("vecadd", folder) is None


def test_a_clipped_name_stands_for_its_kernel_alone() -> None:
    """A long kernel's directory holds its beginning and its SHA-1, and is held against both."""
    kernel = "k" * 300
    digest = entry.letters_of(hashlib.sha1(kernel.encode(), usedforsecurity=False).digest())
    folder = f"{kernel[:100]}.{digest}"
    assert entry.is_called(folder, kernel)
    assert not entry.is_called(folder, kernel + "k")
    assert not entry.is_called(f"x{folder}", kernel)
    assert entry.short(folder) == "k" * 100 + "…"


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("tempfile_AIaq2O", "leftovers"),
        ("tempfile_AIaq2O.so.o", "leftovers"),
        ("tempdir_x1y2z3.a", "leftovers"),
        ("tempdir_gpucache_00ff", "leftovers"),
        ("_UNCACHED_abc123", "leftovers"),
        ("AB", None),
        ("tempfiles_of_my_thesis", None),
        ("tempfile_to_keep.d2", None),
        ("notes.txt", None),
    ],
)
def test_temporary_names_are_told(name: str, pattern: str | None, tmp_path: Path) -> None:
    """Temporary files in the root are recognised by their whole names, those of a removal included."""
    build.program(tmp_path)
    (tmp_path / name).touch()
    os.utime(tmp_path / name, ns=(build.NOW - build.DAY,) * 2)
    found = [one for checked in build.cache(tmp_path).leftovers() for one in checked.findings]
    assert [one.entry for one in found] == [pattern or tmp_path.name]
