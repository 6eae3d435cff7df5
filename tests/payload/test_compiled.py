import os
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucache.payload import PayloadInfo, PayloadKind, describe
from tests.patience import PATIENCE_S
from tests.pocl import PLATFORM, need_pocl

CUDA_SOURCE = (
    b'extern "C" __global__ void scale(float* a) { a[0] *= 2; }\n__global__ void add(float* a) { a[1]++; }'
)
BUILD_OPENCL = """
import pathlib, sys, warnings
import pyopencl as cl
warnings.simplefilter("ignore")
source = "kernel void scale(global float* a) { a[0] *= 2; } kernel void add(global float* a) { a[1] += 1; }"
for index, platform in enumerate(cl.get_platforms()):
    if sys.argv[1] in platform.name:
        try:
            program = cl.Program(cl.Context(platform.get_devices()[:1]), source).build()
        except cl.RuntimeError as error:
            if "unknown target CPU" in str(error):
                continue  # a PoCL too old for this machine
            raise
        pathlib.Path(sys.argv[2], str(index)).write_bytes(program.binaries[0])
"""
quick = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def nvrtc_output(result: str, *options: str) -> bytes:
    """NVRTC's result for CUDA_SOURCE; ``result`` is CUBIN, PTX or LTOIR."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-python is not installed")
    try:
        _, program = nvrtc.nvrtcCreateProgram(CUDA_SOURCE, b"sample.cu", 0, [], [])
    except RuntimeError as failure:
        pytest.skip(f"NVRTC does not load: {failure}")
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if error == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
        pytest.skip(f"this NVRTC does not know {options}")
    assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS
    _, size = getattr(nvrtc, f"nvrtcGet{result}Size")(program)
    data = bytearray(size)
    getattr(nvrtc, f"nvrtcGet{result}")(program, data)
    nvrtc.nvrtcDestroyProgram(program)
    return bytes(data)


def opencl_output(platform: str, folder: Path, **environment: str) -> list[bytes]:
    """The binaries of the named platforms that can compile, for a small program, from another process."""
    pytest.importorskip("pyopencl", reason="PyOpenCL is not installed")
    caches = {"POCL_CACHE_DIR": str(folder), "XDG_CACHE_HOME": str(folder), "PYOPENCL_NO_CACHE": "1"}
    out = folder / "binaries"
    out.mkdir()
    subprocess.run(
        [sys.executable, "-c", BUILD_OPENCL, platform, str(out)],
        env={**os.environ, **caches, **environment},
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    return [path.read_bytes() for path in sorted(out.iterdir())]


@pytest.fixture(scope="module")
def poclbins(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    need_pocl()
    return opencl_output(PLATFORM, tmp_path_factory.mktemp("pocl"))


@pytest.fixture(scope="module")
def intel_binary(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    library = Path(sys.prefix) / "lib" / "libintelocl.so"
    if not library.exists():
        pytest.skip("Intel's OpenCL runtime is not installed")
    vendors = tmp_path_factory.mktemp("vendors")
    (vendors / "intel.icd").write_text(f"{library}\n")
    folder = tmp_path_factory.mktemp("intel")
    return opencl_output("Intel", folder, OCL_ICD_VENDORS=str(vendors))[0]


@pytest.fixture(scope="module")
def samples(poclbins: list[bytes], intel_binary: bytes) -> list[bytes]:
    made = [nvrtc_output("CUBIN", "-arch=sm_90"), nvrtc_output("CUBIN", "-arch=sm_100a")]
    made += [nvrtc_output("PTX", "-arch=compute_90"), nvrtc_output("LTOIR", "-arch=compute_90a", "-dlto")]
    return [*made, *poclbins, intel_binary]


def details(info: PayloadInfo) -> Mapping[str, str]:
    return dict(info.detail)


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        *((arch, ()) for arch in ("sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100", "sm_100a")),
        *((arch, ("-rdc=true",)) for arch in ("sm_75", "sm_90a", "sm_120")),
        *((arch, ("-G",)) for arch in ("sm_90", "sm_100f", "sm_120a")),
    ],
)
def test_cubin_of_nvrtc_is_whole_and_names_its_architecture(arch: str, options: tuple[str, ...]) -> None:
    """NVRTC's cubins of every architecture, suffix included, are read as built."""
    info = describe(nvrtc_output("CUBIN", f"-arch={arch}", *options))
    assert (info.kind, info.architecture, info.problem) == (PayloadKind.CUBIN, arch, None)
    assert details(info)["machine"] == "CUDA"
    assert set(details(info)["names of functions"].split(", ")) == {"scale", "_Z3addPf"}


@pytest.mark.parametrize(
    ("arch", "options"),
    [("75", ()), ("90", ("-lineinfo",)), ("90a", ("-G",)), ("100f", ("-lineinfo",)), ("120", ("-G",))],
)
def test_ptx_of_nvrtc_is_whole_with_its_trailing_nul(arch: str, options: tuple[str, ...]) -> None:
    """PTX as NVRTC returns it, NUL and debug sections included, has no problem, with or without the NUL."""
    data = nvrtc_output("PTX", f"-arch=compute_{arch}", *options)
    assert data.endswith(b"\0")
    for text in (data, data[:-1]):
        info = describe(text)
        assert (info.kind, info.architecture, info.problem) == (PayloadKind.PTX, f"compute_{arch}", None)
        assert details(info)["entries"] == "2"
        assert details(info)["names of entries"] == "scale, _Z3addPf"


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        ("compute_75", "compute_75"),
        ("sm_90", "compute_90"),
        ("sm_90a", "compute_90a"),
        ("sm_120", "compute_120"),
    ],
)
def test_ltoir_of_nvrtc_names_its_architecture(arch: str, expected: str) -> None:
    """NVRTC's LTO-IR is recognised, with the architecture from its header."""
    info = describe(nvrtc_output("LTOIR", f"-arch={arch}", "-dlto"))
    assert (info.kind, info.architecture, info.problem) == (PayloadKind.LTOIR, expected, None)


def test_poclbin_names_its_kernels_device_and_build(poclbins: list[bytes]) -> None:
    """Binaries of the installed PoCLs are walked to their last byte."""
    for data in poclbins:
        info = describe(data)
        assert (info.kind, info.architecture, info.problem) == (PayloadKind.POCLBIN, None, None)
        assert details(info)["kernels"] == "2"
        assert set(details(info)["names of kernels"].split(", ")) == {"scale", "add"}
        assert details(info)["device id"] == f"{int.from_bytes(data[8:16], 'little'):016x}"
        assert details(info)["build hash"].encode() in data


def test_intel_cpu_binary_is_told_from_other_elf_files(intel_binary: bytes) -> None:
    """A binary of Intel's CPU runtime is recognised, and this interpreter is just an ELF file."""
    info = describe(intel_binary)
    assert (info.kind, info.problem) == (PayloadKind.INTEL_CPU, None)
    executable = Path(sys.executable).read_bytes()
    if executable.startswith(b"\x7fELF"):
        assert describe(executable).kind is PayloadKind.ELF
        assert describe(executable).problem is None


@pytest.mark.parametrize("arch", ["sm_75", "sm_100"])
def test_every_cut_of_a_cubin_is_a_problem(arch: str) -> None:
    """A cubin cut anywhere after its magic number has a problem; cut before, it is unknown."""
    data = nvrtc_output("CUBIN", f"-arch={arch}")
    for size in range(4, len(data)):
        info = describe(data[:size])
        assert info.problem is not None, size
        assert info.kind is (PayloadKind.CUBIN if size >= 20 else PayloadKind.ELF)
    assert {describe(data[:size]).kind for size in range(4)} == {PayloadKind.UNKNOWN}


def test_every_cut_of_a_poclbin_or_intel_binary_is_a_problem(samples: list[bytes]) -> None:
    """Both have the length of their last part, so every cut is noticed."""
    for data in samples[4:]:
        cuts = [*range(8, 400), *range(400, len(data), 211), *range(len(data) - 100, len(data))]
        assert [size for size in cuts if describe(data[:size]).problem is None] == []


def test_cut_of_ptx_is_noticed_inside_a_function() -> None:
    """PTX cut anywhere from a function's first keyword to its closing brace is broken."""
    data = nvrtc_output("PTX", "-arch=compute_90")
    for opening in (data.find(b".visible"), data.rfind(b".visible")):
        ending = data.find(b"\n}", opening) + 1
        for size in range(opening + len(b".visible"), ending + 1):
            assert describe(data[:size]).problem is not None, data[:size][-30:]
        assert describe(data[: ending + 1]).problem is None


@pytest.mark.parametrize("more", [b"", b"// a } and a .entry in a line's comment\n", b'.file 1 "a{b"\n'])
def test_a_comment_of_other_code_changes_nothing_about_ptx(more: bytes) -> None:
    """Wherever PTX is cut, it has the same entries and problem with and without one."""
    whole = nvrtc_output("PTX", "-arch=compute_90").rstrip(b"\0")
    whole = whole[: whole.find(b".visible")] + more + whole[whole.find(b".visible") :]
    at = whole.find(b".target")
    for size in range(whole.find(b".visible"), len(whole) + 1, 3):
        data = whole[:size]
        one, other = describe(data), describe(data[:at] + b"/* { */" + data[at:])
        assert (one.kernels, one.problem) == (other.kernels, other.problem)


@quick
@given(st.binary(max_size=600))
def test_random_bytes_never_raise(data: bytes) -> None:
    """Any bytes are described, and only recognised or empty ones can have a problem."""
    info = describe(data)
    assert isinstance(info, PayloadInfo)
    assert info.problem is None or info.kind is not PayloadKind.UNKNOWN or not data


MAGICS = [
    b"\x7fELF\x02\x01",
    b"\x7fELF\x01\x02",
    b"poclbin\0",
    b"rusticl\0",
    b"\x50\xed\x55\xba",
    b"\xedCN\x7f",
]
MAGICS += [
    b"\x03\x02\x23\x07",
    b"\x07\x23\x02\x03",
    b"BC\xc0\xde",
    b"\xde\xc0\x17\x0b",
    b"__CLANG_OFFLOAD_BUNDLE__",
    b"CCOB",
    b"\x20\0\0\0\1\0\0\0",
    b".version 8.0\n.target sm_90\n",
]


@quick
@given(st.sampled_from(MAGICS), st.binary(max_size=400), st.binary(max_size=64))
def test_random_bytes_behind_a_magic_number_never_raise(magic: bytes, tail: bytes, filler: bytes) -> None:
    """A magic number with any bytes after it is recognised."""
    assert describe(magic + tail + filler * 8).kind is not PayloadKind.UNKNOWN


@quick
@given(st.data())
def test_damaged_samples_never_raise(samples: list[bytes], data: st.DataObject) -> None:
    """Real binaries, cut and overwritten anywhere, are described in printable text of bounded length."""
    sample = bytearray(data.draw(st.sampled_from(samples)))
    del sample[data.draw(st.integers(0, len(sample))) :]
    for _ in range(data.draw(st.integers(1, 6))):
        near = min(len(sample), 128) if data.draw(st.booleans()) else len(sample)
        start = data.draw(st.integers(0, near))
        sample[start : start + 8] = data.draw(
            st.sampled_from([b"", b"\xff" * 8, b"\0" * 8, b"\x7f\xff", b"\x1b[2J"])
        )
    for label, value in describe(bytes(sample)).detail:
        assert value.isprintable() and len(value) <= 16 * 203 + 20, label


def test_lengths_beyond_the_payload_allocate_nothing() -> None:
    """Headers that claim enormous parts take no memory."""
    hostile = [magic + b"\xff" * 120 for magic in MAGICS]
    for data in hostile:
        describe(data)
    tracemalloc.start()
    try:
        for data in hostile:
            describe(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024
