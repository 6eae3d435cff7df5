"""The kernels of SPIR-V modules."""

import struct

from gpucache.payload import describe
from gpucache.payload.spirv import kernel_names
from tests.payload.build import spirv

_ENTRY, _FUNCTION = 15, 54


def entry(name: str) -> tuple[int, ...]:
    """An entry point as an instruction: operation, model, function, and the name."""
    text = name.encode() + b"\0"
    text += bytes(-len(text) % 4)
    return (_ENTRY, 6, 1, *struct.unpack(f"<{len(text) // 4}I", text))


def test_kernels_of_modules_behind_each_other_are_found() -> None:
    """Each once, in their order, and only those before the functions of their module."""
    second = spirv("<", entry("scale"), entry("fill"), (_FUNCTION, 1, 2, 0, 3), entry("late"))
    assert kernel_names(spirv("<", entry("scale")) + second) == ("scale", "fill")


def test_a_name_that_is_cut_is_none() -> None:
    """Of bytes that end within an entry point only the names before it count."""
    data = spirv("<", entry("scale"), entry("a_name_of_some_length"))
    assert kernel_names(data[:-4]) == ("scale",)


def test_a_long_name_is_told_whole() -> None:
    """The whole name is matched in a binary, and its beginning is shown."""
    data = spirv("<", entry("k" * 600))
    assert kernel_names(data) == ("k" * 600,)
    assert describe(data).kernels == ("k" * 200,)


def test_what_is_no_module_has_no_kernel() -> None:
    """SPIR-V inside another file is not searched."""
    assert kernel_names(b"\x7fELF" + bytes(60) + spirv("<", entry("scale"))) == ()


def test_modules_that_lead_through_each_other_are_read_to_a_bound() -> None:
    """Modules that each lead through all that follow are read in bounded time."""
    through = 3 << 16 | 1  # taken for an instruction, the bound of one header leads to the next header
    module = struct.pack("<6I", 0x07230203, 0x00010200, 0, through, 0, 1 << 16 | 1)
    names = kernel_names(spirv("<", entry("scale")) + module * 40_000 + spirv("<", entry("late")))
    assert names == ("scale",)
