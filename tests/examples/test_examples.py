"""The example programs compute correct results, compile everywhere, and are safe to bench."""

import sysconfig
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from gpucache.backends.cuda import BACKEND
from gpucache.errors import CompileError
from gpucache.examples import manifest_path
from gpucache.manifest import ProgramSpec, read_manifest
from gpucache.model import Artifact, BuildRequest, Language, Target

pytestmark = pytest.mark.slow


class Run(Protocol):
    """The value of the fixture ``run``."""

    arrays: Mapping[str, Any]
    launches: Mapping[str, list[str]]


FFT_SIZES = (256, 512, 1024, 2048, 4096)
FFTS = [("", size) for size in FFT_SIZES] + [("LARGEST=512 ", size) for size in (256, 512)]
GEMMS = [f"gemm_{how}_{shape}" for how in ("nn", "nt", "tn", "tt") for shape in ("2x2", "4x2", "4x4")]
CUDA = {
    "vector_add.cu": "gpucache.toml",
    "transform.cu": "gpucache.toml",
    "matmul.cu": "gpucache.toml",
    "options.cu": "large.toml",
    "cub.cu": "cub.toml",
}


def _specs(language: Language, manifest: str = "gpucache.toml") -> dict[str, ProgramSpec]:
    return {
        spec.program.name: spec
        for spec in read_manifest(manifest_path(manifest))
        if spec.program.language is language
    }


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_saxpy_adds_a_multiple_up_to_n(run: Run, dtype: str) -> None:
    """Every variant of saxpy computes 3 x + y on the first n elements and leaves the last alone."""
    x, y, result = (run.arrays[f"saxpy {dtype} {name}"] for name in ("x", "y", "result"))
    expected = 3 * x + y
    expected[-1] = y[-1]
    assert np.array_equal(result, expected)


@pytest.mark.parametrize("local", [64, 256, 48])
def test_reduce_agrees_with_numpy(run: Run, local: int) -> None:
    """Two launches of a reduction give the sum and maximum of the first n elements, at any local size."""
    values = run.arrays["reduce values"][:-1]
    assert run.arrays[f"reduce sum {local}"][0] == pytest.approx(values.sum(dtype=np.float64), rel=1e-5)
    assert run.arrays[f"reduce maximum {local}"][0] == values.max()


@pytest.mark.parametrize("local", ["16x16", "32x8", "5x3"])
def test_stencil_agrees_with_numpy(run: Run, local: str) -> None:
    """A time step bends the wave as the eighth-order weights say, with nothing beyond the plane."""
    previous, current, speed = (
        run.arrays[f"stencil {name}"].astype(np.float64) for name in ("previous", "current", "speed")
    )
    around = np.pad(current, 4)
    high, wide = current.shape
    weights = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)
    bend = 2 * weights[0] * current
    for far in range(1, 5):
        for down, right in ((far, 0), (-far, 0), (0, far), (0, -far)):
            bend += weights[far] * around[4 + down : 4 + down + high, 4 + right : 4 + right + wide]
    expected = 2 * current - previous + speed * bend
    assert np.allclose(run.arrays[f"stencil {local}"], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("local", [64, 256, 48])
def test_equalize_agrees_with_numpy(run: Run, local: int) -> None:
    """Three launches count, scan and replace the levels of the first n pixels, at any local size."""
    pixels = run.arrays["equalize pixels"]
    counts = np.bincount(pixels[:-1], minlength=256)
    expected = (counts.cumsum() * 255 // counts.sum())[pixels]
    expected[-1] = pixels[-1]
    assert np.array_equal(run.arrays[f"equalize {local} counts"], counts)
    assert np.array_equal(run.arrays[f"equalize {local} result"], expected)


@pytest.mark.parametrize("name", GEMMS)
def test_gemm_agrees_with_numpy(run: Run, name: str) -> None:
    """Every kernel multiplies matrices that fit no tile, transposed or not, and adds to the output."""
    a, b, c = (run.arrays[f"gemm {matrix}"].astype(np.float64) for matrix in "abc")
    assert np.allclose(run.arrays[name], 1.5 * a @ b - 0.5 * c, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("variant", "points"), FFTS)
@pytest.mark.parametrize("name", ["fft", "inverse_fft"])
def test_fft_agrees_with_numpy(run: Run, name: str, variant: str, points: int) -> None:
    """Each kernel transforms the given number of signals and leaves the next one alone."""
    signals = run.arrays[f"{variant}{name}_{points} signals"]
    expected = {"fft": np.fft.fft, "inverse_fft": np.fft.ifft}[name](signals)
    expected[-1] = signals[-1]
    assert np.allclose(
        run.arrays[f"{variant}{name}_{points} result"], expected, rtol=0, atol=1e-6 * abs(expected).max()
    )


def test_bench_launches_every_kernel_at_its_local_sizes(run: Run) -> None:
    """A launch on zeros, as a bench makes it, is understood and survived by every OpenCL kernel."""
    assert {program: sorted(launches) for program, launches in run.launches.items()} == {
        "saxpy.cl BLOCK=4 T=float": ["saxpy 64"],
        "saxpy.cl BLOCK=4 T=int": ["saxpy 64"],
        "reduce.cl": _at(["reduce_maximum", "reduce_sum"], "64", "256"),
        "stencil.cl": _at(["wave_step"], "16x16", "32x8"),
        "equalize.cl": _at(["assign_levels", "count_levels", "replace_levels"], "64", "256"),
        "fft.cl LARGEST=512": _at(_ffts(256, 512), "64x1x1"),
        "fft.cl": _at(_ffts(*FFT_SIZES), "64x1x1"),
        "gemm.cl": _at(GEMMS, "8x8x1"),
    }


@pytest.mark.parametrize(
    ("manifest", "programs"),
    [
        ("gpucache.toml", ["equalize.cl", "fft.cl", "reduce.cl", "saxpy.cl", "stencil.cl"]),
        ("large.toml", ["fft.cl", "gemm.cl"]),
    ],
)
def test_opencl_examples_name_no_targets(manifest: str, programs: list[str]) -> None:
    """OpenCL examples are for any device, at local sizes that compilers can build ahead for."""
    specs = _specs(Language.OPENCL_C, manifest)
    assert sorted(specs) == programs
    assert all(not spec.targets and spec.local_sizes for spec in specs.values())


@pytest.mark.parametrize("program", CUDA)
def test_cuda_examples_compile_for_their_targets(program: str) -> None:
    """Every CUDA example compiles without messages for its targets, which need not be present."""
    artifacts = _compiled(program)
    assert {"cuda:sm_80", "cuda:sm_90"} <= set(artifacts)
    assert [artifact.build_log for artifact in artifacts.values()] == [""] * len(artifacts)


def test_vector_add_is_also_built_as_ptx() -> None:
    """The PTX of vector_add has the kernel under its name in the source."""
    ptx = _compiled("vector_add.cu")["cuda:compute_80"].payload
    assert b".visible .entry vector_add(" in ptx


@pytest.mark.parametrize("program", ["transform.cu", "matmul.cu", "options.cu", "cub.cu"])
def test_templates_get_a_lowered_name_for_each_instance(program: str) -> None:
    """Each named instance of a template is in the cubin under its lowered name."""
    spec = _specs(Language.CUDA_CPP, CUDA[program])[program]
    for artifact in _compiled(program).values():
        assert tuple(artifact.lowered_names) == spec.name_expressions
        assert all(name.encode() in artifact.payload for name in artifact.lowered_names.values())


def test_cub_without_its_headers_says_where_to_read() -> None:
    """Without the directories of CUB the first error names the manifest whose comment gives them."""
    _needs("nvidia-cuda-nvrtc")
    spec = _specs(Language.CUDA_CPP, "cub.toml")["cub.cu"]
    with pytest.raises(CompileError, match=r"cub\.cu does not compile") as caught:
        _compile(spec, "cuda:sm_90")
    assert 'error: #error directive: "CUB is not on the include path; cub.toml' in caught.value.log


def _ffts(*sizes: int) -> list[str]:
    return [f"{name}_{size}" for name in ("fft", "inverse_fft") for size in sizes]


def _at(kernels: list[str], *local_sizes: str) -> list[str]:
    return sorted(f"{kernel} {size}" for kernel in kernels for size in local_sizes)


def _needs(*packages: str) -> None:
    for package in packages:
        try:
            distribution(package)
        except PackageNotFoundError:
            pytest.skip(f"{package} is not installed")


@cache
def _compiled(program: str) -> dict[str, Artifact]:
    """By target, NVRTC's result for a program; once for all tests."""
    _needs("nvidia-cuda-nvrtc")
    folders: tuple[str, ...] = ()
    if program == "cub.cu":
        _needs("nvidia-cuda-cccl", "nvidia-cuda-runtime")
        include = Path(sysconfig.get_path("purelib"), "nvidia/cu13/include")
        folders = (str(include), str(include / "cccl"))
    spec = _specs(Language.CUDA_CPP, CUDA[program])[program]
    return {target: _compile(spec, target, *folders) for target in spec.targets}


def _compile(spec: ProgramSpec, text: str, *folders: str) -> Artifact:
    target = Target.parse(text)
    request = BuildRequest(
        program=spec.program,
        target=target,
        options=spec.options,
        include_dirs=(*spec.include_dirs, *folders),
        artifact_kind=BACKEND.artifact_kind(target),
        name_expressions=spec.name_expressions,
    )
    return BACKEND.compile(request, BACKEND.plan(request, BACKEND.toolchain(target), {}))
