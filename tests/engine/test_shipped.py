"""Compiled files that somebody shipped, made from their formats, and the machines that they fit."""

import pickle
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

from gpucache.engine.shipped import is_shipped, read_shipped, unread
from gpucache.model import Device, Target
from tests.caches.deep_gemm.build import CUBIN
from tests.caches.manifests.build import mega_cache
from tests.caches.opened import PTX
from tests.caches.rocfft import build as rocfft
from tests.caches.test_pickles import POISONED
from tests.payload.build import elf64

_PTX, _CUBIN = 1, 2


def _fatbin(*images: tuple[int, int], content: bytes = b"code" * 8) -> bytes:
    """A fatbin with images of a kind and an architecture."""
    made = b""
    for kind, number in images:
        head = struct.pack("<HHIQ", kind, 0, 64, len(content)) + bytes(12) + struct.pack("<I", number)
        made += head.ljust(64, b"\0") + content
    return b"\x50\xed\x55\xba" + struct.pack("<HHQ", 1, 16, len(made)) + made


_LIBRARY = elf64(
    elf_type=3,
    sections=[(".nv_fatbin", _fatbin((_CUBIN, 80), (_PTX, 80)) + bytes(8) + _fatbin((_CUBIN, 90)))],
)


def _device(name: str) -> Device:
    return Device(Target("cuda", name), "cuda", "GPU", "1", available=True, detail="")


def test_a_library_has_the_architectures_of_all_its_fatbins(tmp_path: Path) -> None:
    """Machine code apart from PTX, in the order of their numbers."""
    path = tmp_path / "libk.so.1"
    path.write_bytes(_LIBRARY)
    found = read_shipped(path)
    assert (found.kind, found.machine_code, found.ptx) == ("library", ("sm_80", "sm_90"), ("compute_80",))


@pytest.mark.parametrize(
    ("device", "runs", "compiles", "lacks"),
    [
        ("sm_80", True, False, False),
        ("sm_86", True, False, False),
        ("sm_90", True, False, False),
        ("sm_120", False, True, False),
        ("sm_75", False, False, True),
    ],
)
def test_it_fits_a_machine_with_code_of_its_generation_or_older_ptx(
    device: str, runs: bool, compiles: bool, lacks: bool, tmp_path: Path
) -> None:
    """A newer GPU compiles the PTX at the first start; an older one has nothing."""
    path = tmp_path / "libk.so"
    path.write_bytes(_LIBRARY)
    found = read_shipped(path, [_device(device)])
    assert (bool(found.runs_on), bool(found.compiles_for), bool(found.lacks)) == (runs, compiles, lacks)


def test_a_package_has_what_its_binaries_have(tmp_path: Path) -> None:
    """Of PyTorch's packages, which are zip files."""
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as package:
        package.writestr("model/data/aotinductor/model/k.cubin", CUBIN)
        package.writestr("model/data/aotinductor/model/w.so", _LIBRARY)
        package.writestr("model/version", "1")
    found = read_shipped(path)
    assert (found.kind, found.machine_code, found.ptx) == ("package", ("sm_80", "sm_90"), ("compute_80",))


@pytest.mark.parametrize(
    ("name", "data", "kind", "machine", "ptx"),
    [
        ("k.fatbin", _fatbin((_CUBIN, 75), (_PTX, 75)), "fatbin", ("sm_75",), ("compute_75",)),
        ("k.cubin", CUBIN, "cubin", ("sm_90",), ()),
        ("k.ptx", PTX, "ptx", (), ("compute_90",)),
        ("k.engine", b"ftrt" + bytes(60), "engine", (), ()),
    ],
)
def test_other_files_are_known_by_their_content(
    name: str, data: bytes, kind: str, machine: tuple[str, ...], ptx: tuple[str, ...], tmp_path: Path
) -> None:
    """An undocumented format is no damage."""
    (tmp_path / name).write_bytes(data)
    found = read_shipped(tmp_path / name)
    assert (found.kind, found.machine_code, found.ptx, found.damaged) == (kind, machine, ptx, False)


@pytest.mark.parametrize("cut", [20, 90, -4])
def test_a_cut_file_is_damaged(cut: int, tmp_path: Path) -> None:
    """Whatever its name says."""
    (tmp_path / "k.fatbin").write_bytes(_fatbin((_CUBIN, 75), (_PTX, 75))[:cut])
    assert read_shipped(tmp_path / "k.fatbin").damaged


def test_a_word_that_is_no_compiled_file_means_a_program(tmp_path: Path) -> None:
    """By its name, and only if it exists."""
    (tmp_path / "k.cl").write_text("kernel void k() {}")
    (tmp_path / "k.so").write_bytes(_LIBRARY)
    assert is_shipped(str(tmp_path / "k.so"))
    assert not any(map(is_shipped, (str(tmp_path / "k.cl"), "k.so", "saxpy", "cuda:sm_90", str(tmp_path))))


@pytest.mark.parametrize(
    ("member", "content", "machine_code", "ptx"),
    [
        ("add_cuda_nvptx_fb.fb", b"\0" * 20 + b".version 7.0\n.target sm_80\n", (), ("compute_80",)),
        ("add_rocm_hsaco_fb.fb", b"\0" * 20 + rocfft.code("gfx942"), ("gfx942",), ()),
        ("add_vulkan_spirv_fb.fb", b"\3\2\x23\7" * 9, (), ()),
    ],
)
def test_a_module_of_iree_has_code_in_its_messages(
    member: str, content: bytes, machine_code: tuple[str, ...], ptx: tuple[str, ...], tmp_path: Path
) -> None:
    """The PTX or ELF begins somewhere in a message of FlatBuffers."""
    path = tmp_path / "model.vmfb"
    with zipfile.ZipFile(path, "w") as package:
        package.writestr("module.fb", b"IREE")
        package.writestr(member, content)
    found = read_shipped(path)
    assert (found.kind, found.machine_code, found.ptx) == ("vmfb", machine_code, ptx)


@pytest.mark.parametrize(
    ("name", "content", "kind", "damaged"),
    [
        ("model.engine", b"ftrt\0\0\0\0" + bytes(16) + bytes((10, 3, 0, 26)), "engine", False),
        ("model.plan", b"hello\n", "unknown", True),
        ("lib.metallib", b"MTLB" + bytes(90), "metallib", False),
        ("lib.so", b"hello\n", "unknown", True),
        ("lib.so.1", b"", "unknown", True),
        ("model.vmfb", b"PK\3\4 cut", "unknown", True),
        ("lib.dll", b"MZ" + bytes(90), "unknown", False),
    ],
)
def test_a_file_has_to_begin_as_its_name_says(
    name: str, content: bytes, kind: str, damaged: bool, tmp_path: Path
) -> None:
    """A format that is not documented is no damage; text in the place of a library is."""
    path = tmp_path / name
    path.write_bytes(content)
    found = read_shipped(path)
    assert (found.kind, found.damaged) == (kind, damaged)


def test_words_that_are_no_compiled_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources are names of programs, and a word alone is a key."""
    is_told = {"notes.txt": True, "scale.cl": False, "scale.hip": False, "lib.so": False, "key": True}
    for name in is_told:
        (tmp_path / name).write_text("text", encoding="ascii")
    assert {name: bool(unread(str(tmp_path / name))) for name in is_told} == is_told
    monkeypatch.chdir(tmp_path)
    assert not unread("key")
    assert unread(str(tmp_path / "gone.so")) and not unread(str(tmp_path / "gone"))


_GRAPH = pickle.dumps({"graph": [1, 2]})


@pytest.mark.parametrize(
    ("data", "damaged"),
    [
        (mega_cache(_GRAPH, _GRAPH), False),
        (mega_cache(_GRAPH, POISONED["protocol 0"]), True),
        (mega_cache(_GRAPH)[:-1], True),
        (mega_cache(_GRAPH)[:-1] + b"?", True),
    ],
)
def test_a_mega_cache_of_pytorch_is_known_by_its_content(data: bytes, damaged: bool, tmp_path: Path) -> None:
    """Its checksum is compared, and so are the names in each of its graphs."""
    path = tmp_path / "artifacts"
    path.write_bytes(data)
    assert is_shipped(str(path))
    found = read_shipped(path)
    assert found.damaged == damaged, found.problem


def test_a_mega_cache_whose_lengths_lie_is_damaged(tmp_path: Path) -> None:
    """Nothing is allocated by them, and the checksum is right."""
    made = struct.pack(">QQ", 1, 1 << 60)
    path = tmp_path / "artifacts"
    path.write_bytes(struct.pack(">I", zlib.crc32(made)) + made)
    assert read_shipped(path).damaged


@pytest.mark.parametrize(("data", "damaged"), [(b"ptrt kernels", False), (b"", True)])
def test_a_runtime_cache_of_tensorrt_rtx_is_known_by_its_name_alone(
    data: bytes, damaged: bool, tmp_path: Path
) -> None:
    """Its format is not documented, so it is said not to be checked."""
    path = tmp_path / "my_runtime_cache.bin"
    path.write_bytes(data)
    assert is_shipped(str(path))
    found = read_shipped(path)
    assert found.damaged == damaged and ("not documented" in found.problem) != damaged
