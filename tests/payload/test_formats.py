import struct

import pytest

from gpucache.payload import PayloadKind, describe
from tests.payload.build import bitcode, elf64, fatbin, poclbin, spirv

K = PayloadKind
NOBITS = 8


RUSTICL = b"rusticl\0" + struct.pack("<4I", 1, 8, 20, 4) + b"llvmpipe" + spirv("<")
OLDER_RUSTICL = struct.pack("<3I", 1, 20, 4) + spirv("<")
VULKAN = struct.pack("<4I", 32, 1, 0x10DE, 0x2330) + bytes(range(16))


@pytest.mark.parametrize(
    ("abi_version", "flags", "architecture"),
    [
        (7, 0x340534, "sm_52"),
        (7, 0x5A055A, "sm_90"),
        (7, 0x5A0D5A, "sm_90a"),
        (8, 0x6005A04, "sm_90"),
        (8, 0x600640A, "sm_100a"),
        (8, 0x6007802, "sm_120"),
        (9, 0x6007802, None),
    ],
)
def test_architecture_of_a_cubin_follows_its_abi(
    abi_version: int, flags: int, architecture: str | None
) -> None:
    """Flags as written by several NVRTCs give the architecture; for an unknown ABI version there is none."""
    info = describe(elf64(190, flags=flags, abi_version=abi_version, sections=[(".text.k", b"code")]))
    assert (info.kind, info.architecture, info.problem) == (K.CUBIN, architecture, None)
    assert ("names of functions", "k") in info.detail


@pytest.mark.parametrize(
    ("data", "kind", "architecture"),
    [
        (elf64(), K.ELF, None),
        (elf64(elf_type=0xFF04), K.INTEL_CPU, None),
        (elf64(0, 0xFF02, sections=[(".ocl.ir", b"BC\xc0\xde")]), K.INTEL_CPU, None),
        (elf64(205), K.INTEL_GPU, None),
        (elf64(224, sections=[(".note", b"amdgcn-amd-amdhsa--gfx90a:xnack-")]), K.AMDGPU, "gfx90a"),
        (fatbin((2, 90, b"elf"), (1, 80, b"text")), K.FATBIN, None),
        (poclbin(8, ["k"]), K.POCLBIN, None),
        (poclbin(9, ["k", "l"]), K.POCLBIN, None),
        (poclbin(11, ["k"], flags=2), K.POCLBIN, None),
        (b"poclbin\0" + struct.pack("<QIIQ", 1, 99, 1, 0), K.POCLBIN, None),
        (spirv("<"), K.SPIRV, None),
        (spirv(">", (17, 6)), K.SPIRV, None),
        (b"BC\xc0\xde" + bytes(8), K.LLVM_BITCODE, None),
        (b"\xde\xc0\x17\x0b" + struct.pack("<4I", 0, 20, 4, 7) + b"BC\xc0\xde", K.LLVM_BITCODE, None),
        (RUSTICL, K.RUSTICL, None),
        (OLDER_RUSTICL, K.RUSTICL, None),
        (VULKAN, K.VULKAN_PIPELINES, "10de:2330"),
        (b"// by hand\n.version 7.0\n.target sm_80, debug\n", K.PTX, "compute_80"),
        (b"hello", K.UNKNOWN, None),
    ],
)
def test_formats_are_told_apart(data: bytes, kind: PayloadKind, architecture: str | None) -> None:
    """Minimal sound files of every format are recognised and have no problem."""
    info = describe(data)
    assert (info.kind, info.architecture, info.problem) == (kind, architecture, None)


def test_a_vulkan_pipeline_cache_names_its_device() -> None:
    """Vendor, device and the driver's UUID are in its header, whatever data follow."""
    info = describe(VULKAN + b"the driver's own")
    assert (info.target, info.problem) == ("vulkan:10de:2330", None)
    assert {("vendor", "NVIDIA"), ("device", "0x2330"), ("UUID", bytes(range(16)).hex())} <= set(info.detail)


@pytest.mark.parametrize(
    "data",
    [
        poclbin(8, ["k"]),
        poclbin(11, ["k"]),
        fatbin((2, 90, b"elf")),
        RUSTICL,
        VULKAN,
        elf64(190, abi_version=8),
    ],
    ids=["poclbin 8", "poclbin 11", "fatbin", "rusticl", "vulkan", "cubin"],
)
def test_every_cut_behind_the_magic_number_is_a_problem(data: bytes) -> None:
    """Formats that contain their length notice every missing byte."""
    assert [size for size in range(8, len(data)) if describe(data[:size]).problem is None] == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\x7fELF\x03\x01" + bytes(60), "class 3"),
        (elf64()[:58] + b"\x20" + elf64()[59:], "entries of 32 bytes"),
        (elf64()[:40] + b"\xff" * 8 + elf64()[48:], "section table"),
        (poclbin(9, ["k"]) + b"x", "the last kernel ends"),
        (poclbin(8, ["k"])[:-65] + bytes(24), "kernel 0 has 0 bytes"),
        (b"poclbin\0" + struct.pack("<QIIQ", 1, 9, 2**31, 0) + bytes(60), "claims 2147483648 kernels"),
        (spirv("<") + bytes(4), "no length"),
        (spirv("<", (17, 6))[:-4], "last instruction"),
        (OLDER_RUSTICL[:-1], "the SPIR-V ends at byte 32"),
        (OLDER_RUSTICL + b"x", "1 bytes follow its SPIR-V"),
        (elf64(elf_type=0xFF04) + b"xy", "2 bytes follow its last section"),
        (b"BC\xc0\xde\0", "4-byte words"),
        (b".version 8.0\n", "no .target"),
        (b".version 8.0\n.target sm_90\n.visible", "inside a statement"),
        (b".version 8.0\n.target sm_90\n.entry k() { ret;", "inside a block"),
        (b".version 8.0\n.target sm_90\n/* and", "inside a comment"),
        (b".version 8.0\n.target sm_90\n.global .u32 a\0;\n", "NUL byte inside"),
        (b".version 8.0\n.target sm_90\n\0\0", "NUL byte inside"),
    ],
)
def test_contradictions_are_problems(data: bytes, words: str) -> None:
    """A contradiction of the format is reported in a sentence that names the part."""
    assert words in (describe(data).problem or "")


def test_payloads_inside_others_are_read_on_request() -> None:
    """Damage to bitcode in an ELF section or a poclbin is found with ``inside``."""
    sound = bitcode()
    damaged = sound[:48] + bytes(16) + sound[64:]

    def in_elf(code: bytes) -> bytes:
        return elf64(0, 0xFF02, sections=[(".ocl.ir", code)])

    def in_poclbin(code: bytes) -> bytes:
        return poclbin(9, [], code)

    for wrap in (in_elf, in_poclbin):
        assert describe(wrap(sound), inside=2).problem is None
        assert describe(wrap(damaged)).problem is None
        assert "bytes from byte" in (describe(wrap(damaged), inside=2).problem or "")


def test_braces_in_comments_and_strings_of_ptx_do_not_count() -> None:
    """Sound PTX with brackets in comments and paths has no problem."""
    text = b'.version 8.0\n.target sm_90\n// {\n/* ( */ .entry k() { ret; // }\n}\n.file 1 "//a/{b.cu"\n\0'
    assert describe(text).problem is None


def test_ptx_may_end_with_its_compilers_version() -> None:
    """The section that NVRTC's --version-ident adds is sound, and every cut inside its text is noticed."""
    head = b".version 9.5\n.target sm_90\n.address_size 64\n\n.visible .entry k()\n{\nret;\n}\n\n"
    section = b'\t.section .comment\t"Cuda compilation tools, V13.5.37; Based on NVVM 7.0.1"\n\0'
    assert describe(head + section).problem is None
    cuts = [size for size in range(2, len(section) - 2) if describe(head + section[:size]).problem is None]
    assert cuts == []


def test_names_are_printable_and_bounded_in_number() -> None:
    """Kernel names from a payload cannot move a terminal's cursor, and only the first are listed."""
    detail = dict(describe(poclbin(9, ["\x1b[2Jk", *(f"k{i}" for i in range(40))])).detail)
    assert detail["kernels"] == "41"
    assert detail["names of kernels"].startswith("\N{REPLACEMENT CHARACTER}[2Jk, k0, k1")
    assert detail["names of kernels"].endswith("k14 and 25 more")


def test_entry_points_of_spirv_are_read_in_either_byte_order() -> None:
    """Names of entry points survive the byte order of the module."""
    name = struct.unpack("<2I", b"scale\0\0\0")
    for order in "<>":
        detail = dict(describe(spirv(order, (15, 6, 1, *name), (17, 6))).detail)
        assert detail["names of entry points"] == "scale"
        assert detail["SPIR-V version"] == "1.2"


def test_images_of_a_fatbin_are_listed() -> None:
    """A fatbin names the architectures of its images, PTX as virtual ones."""
    detail = dict(describe(fatbin((2, 90, b"elf"), (1, 80, b"text"), (9, 70, b""))).detail)
    assert detail["names of images"] == "sm_90, compute_80, kind 9 for sm_70"


def test_section_without_content_may_lie_anywhere() -> None:
    """A section that occupies no file space is not read, whatever its offset."""
    data = bytearray(
        elf64(190, flags=0x5A00, abi_version=8, sections=[(".note.nv.tkinfo", b"-arch sm_90a ")])
    )
    assert describe(bytes(data)).architecture == "sm_90a"
    row = len(data) - 2 * 64
    struct.pack_into("<I", data, row + 4, NOBITS)
    struct.pack_into("<QQ", data, row + 24, 2**64 - 1, 2**64 - 1)
    info = describe(bytes(data))
    assert (info.architecture, info.problem) == ("sm_90", None)


def test_extended_section_numbering_is_read() -> None:
    """A file that keeps its number of sections in the first one is read like any other."""
    data = bytearray(elf64(sections=[(".text", b"code")]))
    (table,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<HH", data, 60, 0, 0xFFFF)
    struct.pack_into("<QI", data, table + 32, 3, 2)
    info = describe(bytes(data))
    assert info.problem is None
    assert ("names of sections", ".text, .shstrtab") in info.detail
    struct.pack_into("<Q", data, table + 32, 2**64 - 1)
    assert "section table" in (describe(bytes(data)).problem or "")


def test_segments_must_lie_in_the_file() -> None:
    """Program headers are compared with the file's size, also in 32-bit big-endian files."""
    ident = bytes([*b"\x7fELF", 1, 2, 1]).ljust(16, b"\0")
    header = ident + struct.pack(">HHIIIIIHHHHHH", 2, 20, 1, 0, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    assert describe(header + struct.pack(">8I", 1, 0, 0, 0, 84, 84, 0, 0)).problem is None
    assert "segment 0" in (describe(header + struct.pack(">8I", 1, 1, 0, 0, 84, 84, 0, 0)).problem or "")
    assert "program header table" in (describe(header).problem or "")
