"""The example programs compute what they say, compile everywhere, and are safe to bench."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, Protocol

import numpy as np
import pytest

from gpucache.backends.cuda import BACKEND
from gpucache.examples import manifest_path
from gpucache.manifest import ProgramSpec, read_manifest
from gpucache.model import Artifact, BuildRequest, Language, Target


class Run(Protocol):
    """What the fixture ``run`` gives."""

    arrays: Mapping[str, Any]
    launches: Mapping[str, list[str]]


def _specs(language: Language) -> dict[str, ProgramSpec]:
    return {
        spec.program.name: spec
        for spec in read_manifest(manifest_path())
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


@pytest.mark.parametrize("points", [256, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("name", ["fft", "inverse_fft"])
def test_fft_agrees_with_numpy(run: Run, name: str, points: int) -> None:
    """Each kernel transforms as many signals as it is told to and leaves the next one alone."""
    signals = run.arrays[f"{name}_{points} signals"]
    expected = {"fft": np.fft.fft, "inverse_fft": np.fft.ifft}[name](signals)
    expected[-1] = signals[-1]
    assert np.allclose(
        run.arrays[f"{name}_{points} result"], expected, rtol=0, atol=1e-6 * abs(expected).max()
    )


def test_bench_launches_every_kernel_at_its_local_sizes(run: Run) -> None:
    """A launch on zeros, as a bench makes it, is understood and survived by every OpenCL kernel."""
    sizes = (256, 512, 1024, 2048, 4096)
    transforms = [f"{name}_{size} 64" for name in ("fft", "inverse_fft") for size in sizes]
    assert {program: sorted(launches) for program, launches in run.launches.items()} == {
        "saxpy.cl BLOCK=4 T=float": ["saxpy 64"],
        "saxpy.cl BLOCK=4 T=int": ["saxpy 64"],
        "reduce.cl": ["reduce_maximum 256", "reduce_maximum 64", "reduce_sum 256", "reduce_sum 64"],
        "fft.cl": sorted(transforms),
    }


def test_opencl_examples_name_no_targets() -> None:
    """OpenCL examples are for whatever device is found, at local sizes that compilers can build ahead for."""
    specs = _specs(Language.OPENCL_C)
    assert sorted(specs) == ["fft.cl", "reduce.cl", "saxpy.cl"]
    assert all(not spec.targets and spec.local_sizes for spec in specs.values())


@pytest.mark.parametrize("program", ["vector_add.cu", "transform.cu", "matmul.cu"])
def test_cuda_examples_compile_for_their_targets(program: str) -> None:
    """Every CUDA example compiles without words for the targets it names, which need not be here."""
    artifacts = _compiled(_specs(Language.CUDA_CPP)[program])
    assert {"cuda:sm_80", "cuda:sm_90"} <= set(artifacts)
    assert [artifact.build_log for artifact in artifacts.values()] == [""] * len(artifacts)


def test_vector_add_is_also_built_as_ptx() -> None:
    """The PTX of vector_add holds the kernel under the name it has in the source."""
    ptx = _compiled(_specs(Language.CUDA_CPP)["vector_add.cu"])["cuda:compute_80"].payload
    assert b".visible .entry vector_add(" in ptx


@pytest.mark.parametrize("program", ["transform.cu", "matmul.cu"])
def test_templates_get_a_lowered_name_for_each_instance(program: str) -> None:
    """Each named instance of a template is in the cubin under its lowered name."""
    spec = _specs(Language.CUDA_CPP)[program]
    for artifact in _compiled(spec).values():
        assert tuple(artifact.lowered_names) == spec.name_expressions
        assert all(name.encode() in artifact.payload for name in artifact.lowered_names.values())


def _compiled(spec: ProgramSpec) -> dict[str, Artifact]:
    try:
        distribution("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    artifacts = {}
    for text in spec.targets:
        target = Target.parse(text)
        request = BuildRequest(
            program=spec.program,
            target=target,
            options=spec.options,
            include_dirs=spec.include_dirs,
            artifact_kind=BACKEND.artifact_kind(target),
            name_expressions=spec.name_expressions,
        )
        compilation = BACKEND.plan(request, BACKEND.toolchain(target), {})
        artifacts[text] = BACKEND.compile(request, compilation)
    return artifacts
