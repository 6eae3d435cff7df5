"""A whole start to the result of its first launch, where our library hits, next to the caches of its peers.

Each side is a fresh process that builds, launches and prints; the caches are filled beforehand. NVIDIA's
OpenCL keeps its own cache, which is the peer there.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest.mock import patch

from tests.benchmarks.library_hit import stable_place
from tests.benchmarks.measure import Comparison, Effort, Side, compare, process
from tests.gpu import no_gpu, no_nvidia_opencl, programs

Sides = Mapping[str, tuple[str, tuple[str, ...], dict[str, str]]]
"""Programs by name, with their arguments and variables; ours are first."""


def run(effort: Effort) -> Iterator[Comparison]:
    """PyOpenCL on Intel's CPU runtime, then on a GPU; cuda.core, CuPy and Triton on a GPU."""
    with stable_place() as place:
        named = Path(os.environ["OCL_ICD_VENDORS"], "intel.icd")
        intel = named.is_file() and Path(named.read_text().strip()).is_file()
        yield _opencl(place, programs.INTEL, "" if intel else "it is not installed", effort)
        vendors = place / "nvidia"
        vendors.mkdir()
        (vendors / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
        with patch.dict(os.environ, OCL_ICD_VENDORS=str(vendors)):
            yield _opencl(place, programs.NVIDIA, no_nvidia_opencl(), effort)
        yield from _cuda(place, effort)


def _opencl(place: Path, platform: str, absent: str, effort: Effort) -> Comparison:
    own = {"XDG_CACHE_HOME": str(place / "peer"), "CUDA_CACHE_PATH": str(place / "peer/driver")}
    texts = {**programs.OPENCL, "PyOpenCL with the caches it finds": programs.PYOPENCL}
    sides = {name: (text, (platform,), own) for name, text in texts.items()}
    without = {"PYOPENCL_NO_CACHE": "1", "CUDA_CACHE_DISABLE": "1"}
    sides["PyOpenCL without a cache"] = (programs.PYOPENCL, (platform,), without)
    return _compare(f"A start with a launch on {platform}", place, sides, absent, effort)


def _cuda(place: Path, effort: Effort) -> Iterator[Comparison]:
    cuda: Sides = {
        "compile_program": (programs.CUDA["compile_program"], ("launch",), {}),
        "cuda.core's file cache": (programs.CUDA_CORE_CACHED, ("launch", str(place / "core")), {}),
        "cuda.core without a cache": (programs.CUDA_CORE, ("launch",), {}),
    }
    cupy: Sides = {
        "CuPy after install()": (programs.CUPY_INSTALLED, (), {}),
        "CuPy's own cache": (programs.CUPY, (), {"CUPY_CACHE_DIR": str(place / "cupy")}),
    }
    ours = {**programs.TRITON_OURS, "TRITON_CACHE_DIR": str(place / "ours")}
    triton: Sides = {
        "our CacheManager": (programs.TRITON, (), ours),
        "Triton's own cache": (programs.TRITON, (), {"TRITON_CACHE_DIR": str(place / "triton")}),
    }
    for name, needed, sides in (
        ("cuda.core", ("cuda.core",), cuda),
        ("CuPy", ("cupy",), cupy),
        ("Triton", ("triton", "torch"), triton),
    ):
        lacking = [module for module in needed if importlib.util.find_spec(module) is None]
        absent = f"{' and '.join(lacking)} not installed" if lacking else no_gpu()
        yield _compare(f"A start with a launch of {name}", place, sides, absent, effort)


def _compare(
    title: str,
    place: Path,
    sides: Sides,
    absent: str,
    effort: Effort,
) -> Comparison:
    if absent:
        return Comparison(title, (), {title.rpartition(" ")[2]: absent})
    made: dict[str, Side] = {}
    for number, (name, (text, words, variables)) in enumerate(sides.items()):
        program = place / f"program-{number}.py"  # Triton reads it again
        program.write_text(text)
        made[name] = process([sys.executable, "-W", "ignore", program, *words], before=None, **variables)
    return compare(title, made, effort.rounds)
