"""ELF files: their exports, needs and build ids, and that damage raises only FormatError."""

import struct

import pytest

from gpucache import payload
from gpucache.errors import FormatError
from gpucache.payload import elf
from gpucache.payload.elf import Library
from gpucache.payload.reading import Reading
from tests.payload.build import library, shared_library

_SOUND = library()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("bits", [32, 64])
def test_a_library_says_what_its_loader_reads(order: str, bits: int) -> None:
    """Build id, needed libraries and search paths are read in either class and byte order."""
    library = elf.read_library(Reading(shared_library(order, bits)))
    assert library == Library("abcdef01", ("libc.so.6", "libm.so.6"), ("/a", "/b"), ("$ORIGIN",))


def test_tables_beyond_the_file_are_refused_before_they_are_read() -> None:
    """A segment larger than the file, or more segments than any library has, raise."""
    sound = shared_library("<", 64)
    notes, dynamic = 64 + 56 + 32, 64 + 2 * 56 + 32
    for places, size, words in (
        ((notes,), 2**62, "beyond"),
        ((notes,), 1 << 21, "large"),
        ((notes, dynamic), 3 << 18, "large"),
    ):
        data = bytearray(sound)
        for place in places:
            struct.pack_into("<Q", data, place, size)
        with pytest.raises(FormatError, match=words):
            elf.read_library(Reading(bytes(data) + bytes(1 << 22)))


def test_the_made_library_is_sound_to_others() -> None:
    """The tests' library is an ELF file without a problem."""
    info = payload.describe(_SOUND)
    assert (info.kind.value, info.problem) == ("elf", None)


def test_a_library_says_what_it_exports() -> None:
    """Exported names, machine and compiler are read."""
    read = elf.read_exports(_SOUND)
    assert read.symbols == {"_pocl_kernel_vecadd", "_pocl_kernel_vecadd_workgroup"}
    assert (read.shared, read.machine, read.compilers) == (True, 62, ("15.0.6",))


def test_an_object_file_is_read_by_its_own_table() -> None:
    """An unlinked file has no dynamic symbols, but the others."""
    assert "_pocl_kernel_vecadd_workgroup" in elf.read_exports(library(kind=1)).symbols


def test_cuts_are_told_from_other_damage() -> None:
    """A file that ends before its section table does is cut."""
    assert all(elf.is_cut(_SOUND[:length]) for length in range(4, len(_SOUND)))
    assert not elf.is_cut(_SOUND)
