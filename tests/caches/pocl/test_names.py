"""What PoCL's names tell: hashes, kernels, local sizes, temporary files."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches.pocl import names


@given(st.binary(min_size=20, max_size=20))
def test_a_key_is_the_hash_without_its_fourth_digit(digest: bytes) -> None:
    """PoCL puts the slash over the letter of the fourth hex digit, and all others are kept in order."""
    letters = names.letters_of(digest)
    assert names.key_of(letters[:2], letters[3:]) == digest.hex()[:3] + digest.hex()[4:]


@given(st.binary(min_size=20, max_size=20))
def test_a_name_of_all_letters_gives_the_whole_hash(digest: bytes) -> None:
    """Where no letter was lost the key has all forty digits."""
    letters = names.letters_of(digest)
    assert names.key_of(letters[:2], letters[2:]) == digest.hex()


def test_a_real_name_gives_its_key() -> None:
    """A name that PoCL 3.0 made is read as published: low half first."""
    assert names.key_of("OE", "PIDHCHGKEOCCFDBEBEDMPNDFPGMKJONKGOJOK").startswith("4ef3827674a2")


@pytest.mark.parametrize("name", ["OQ", "oe", "O", "OEP", "", "A1"])
def test_other_names_are_no_pairs(name: str) -> None:
    """Only two letters from A to P are the first part of a program's folder."""
    assert not names.is_pair(name)


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
    """Local size, global offset and grid are read from the folder's name."""
    variant = names.variant_of("vecadd", folder)
    assert variant is not None
    assert (variant.local_size, variant.words) == (size, words)


@pytest.mark.parametrize(
    "folder", ["16-1", "16-1-1-big", "16-1-1-smallgrid-goffs0", "a-1-1", "\u0661-1-1", ""]
)
def test_other_folders_are_no_variants(folder: str) -> None:
    """What PoCL would not write is no variant."""
    assert names.variant_of("vecadd", folder) is None


def test_a_clipped_name_stands_for_its_kernel_alone() -> None:
    """A long kernel's folder holds its beginning and its SHA-1, and is held against both."""
    kernel = "k" * 300
    digest = names.letters_of(hashlib.sha1(kernel.encode(), usedforsecurity=False).digest())
    folder = f"{kernel[:100]}.{digest}"
    assert names.is_called(folder, kernel)
    assert not names.is_called(folder, kernel + "k")
    assert not names.is_called(f"x{folder}", kernel)
    assert names.short(folder) == "k" * 100 + "…"


def test_a_work_group_function_names_its_kernel() -> None:
    """The exported name holds the kernel's, with or without the leading underscore."""
    assert names.kernel_of("_pocl_kernel_add_workgroup") == "add"
    assert names.kernel_of("pocl_kernel_add_workgroup") == "add"
    assert names.kernel_of("_pocl_kernel_add_workgroup_fast") is None


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("tempfile_AIaq2O", "tempfile"),
        ("tempfile_AIaq2O.so.o", "tempfile"),
        ("tempdir_x1y2z3", "tempdir"),
        pytest.param(names.removed_name(), "tempdir", id="ours"),
        ("_UNCACHED_abc123", "_UNCACHED"),
        ("AB", None),
        ("tempfiles_of_my_thesis", None),
        ("tempdir_to_keep.d", None),
        ("notes.txt", None),
    ],
)
def test_temporary_names_are_told(name: str, group: str | None) -> None:
    """What writers make in the root is known by its whole name, also what we make there."""
    assert names.temporary_group(name) == group


def test_a_file_in_the_making_is_told() -> None:
    """A file of a program is written under its name, six letters and an end."""
    assert names.is_temporary("program.bc_a1B2c3.temp")
    assert not names.is_temporary("program.bc")
