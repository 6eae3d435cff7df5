"""A whole start below ``gpucache run`` with hits only, next to the peers' own caches and the same layer.

Each side is a fresh process, ``run`` and its children together; the caches are filled beforehand. The index
in the root serves the hits, so ``run`` itself only starts the command, waits, and writes its line. A first
start from an image has a fresh root each time, besides one that ``warm --shared --recording`` filled.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gpucache.native.build import BUILT, STARTER
from tests.benchmarks.library_hit import stable_place
from tests.benchmarks.library_start import CUDA, OPENCL, missing
from tests.benchmarks.measure import CHECKOUT, Comparison, Effort, Sample, Side, compare, process

_BUILD = "cl.Program(context, source).build(cache_dir={}).scale\n"
_LINK = """
source = open(sys.argv[1]).read()
cl.link_program(context, [cl.Program(context, source).compile()]).all_kernels()
"""
_FFT = CHECKOUT / "gpucache/examples/fft.cl"
_LIST = "import pyopencl as cl\n[one.get_devices() for one in cl.get_platforms()]\n"
_LINK_ROUNDS = 3
"""A link from its parts takes ten seconds."""
_COMPILE = "compiled({})\n"
_DIRECT = """
import sys
from cuda.bindings import nvrtc
for number in range(int(sys.argv[1])):
    source = b'extern "C" __global__ void scale(float *x) { x[0] *= %d; }' % number
    error, program = nvrtc.nvrtcCreateProgram(source, b"scale.cu", 0, [], [])
    (error,) = nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=sm_90"])
    error, size = nvrtc.nvrtcGetCUBINSize(program)
    nvrtc.nvrtcGetCUBIN(program, bytearray(size))
"""
_COUNTS = (0, 1, 30, 300)
_GPUCACHE = (str(BUILT / STARTER), "--by=3", sys.executable, "-m", "gpucache")
"""As the script of an installed wheel starts; that of a checkout starts Python first."""


def run(effort: Effort) -> Iterator[Comparison]:
    """PyOpenCL on Intel's runtime, a link there, cuda.core, then NVRTC called for more and more programs."""
    with stable_place() as place, patch.dict(os.environ):
        del os.environ["GPUCACHE_MEMORY_BYTES"]  # run reads its settings first where there are any
        titles = ("A PyOpenCL program with one kernel", "A cuda.core program with one kernel")
        if absent := missing(OPENCL):
            yield Comparison(titles[0], (), {"PyOpenCL on Intel's runtime": absent})
        else:
            listing = _python(_LIST)
            below = process([*_GPUCACHE, "run", "--", *listing], GPUCACHE_DIR=str(place / "none"))
            sides = {
                "gpucache run": below,
                "the command alone": process(listing),
            }
            yield compare("A program that lists OpenCL devices, an empty root", sides, effort.rounds)
            own = {
                "PyOpenCL's own cache": process(
                    _python(OPENCL + _BUILD.format("sys.argv[1]"), place / "peer")
                )
            }
            yield _beside(titles[0], _python(OPENCL + _BUILD.format(False)), place / "opencl", own, effort)
            fewer, title = (
                replace(effort, rounds=min(effort.rounds, _LINK_ROUNDS)),
                "fft.cl, compiled and linked apart",
            )
            yield _beside(title, _python(OPENCL + _LINK, _FFT), place / "links", {}, fewer)
        if absent := missing(CUDA):
            yield Comparison(titles[1], (), {"cuda.core": absent})
            return
        kept = "FileStreamProgramCache(sys.argv[1])"
        own = {"cuda.core's file cache": process(_python(CUDA + _COMPILE.format(kept), place / "cuda"))}
        yield _beside(titles[1], _python(CUDA + _COMPILE.format("")), place / "core", own, effort)
        for number in _COUNTS[:2] if effort.small else _COUNTS:
            title = f"A program that calls NVRTC {number} times"
            yield _beside(title, _python(_DIRECT, str(number)), place / f"nvrtc-{number}", {}, effort)


def _beside(
    title: str, command: tuple[str, ...], place: Path, peers: Mapping[str, Side], effort: Effort
) -> Comparison:
    """A command below ``run``, next to a layer of it, its peers, and itself alone."""
    own: dict[str, Any] = {"GPUCACHE_DIR": str(place / "root"), "PYOPENCL_NO_CACHE": "1"}
    layer = place / "layer"
    exported = [*_GPUCACHE, "export", "layer", str(layer), "--", *command]
    subprocess.run(exported, cwd=CHECKOUT, env={**os.environ, **own}, check=False, capture_output=True)
    text = (
        (layer / "gpucache.env").read_text() if layer.is_dir() else ""
    )  # a command that builds nothing has none
    variables = dict(line.split("=", 1) for line in text.splitlines())
    sides = {
        "gpucache run": process([*_GPUCACHE, "run", "--", *command], **own),
        **_from_image(command, place),
        **peers,
        "the same in a layer": process(command, **(own | variables)),
        "the command alone": process(command, **own),
    }
    return compare(title, sides, effort.rounds)


def _from_image(command: tuple[str, ...], place: Path) -> Mapping[str, Side]:
    """A first start from an image, if a recording of the command has what it builds."""
    image, recording, numbers = place / "image", str(place / "recording"), count()
    for words in (
        ("record", "-o", recording, "--", *command),
        ("--root", str(image), "warm", "--shared", "--recording", recording),
    ):
        environ = {**os.environ, "GPUCACHE_DIR": str(place / "none"), "PYOPENCL_NO_CACHE": "1"}
        subprocess.run([*_GPUCACHE, *words], cwd=CHECKOUT, env=environ, check=False, capture_output=True)
    if not (image / "v1").is_dir():
        return {}

    def start() -> Sample:
        fresh = str(place / "fresh" / str(next(numbers)))
        own: dict[str, Any] = {
            "GPUCACHE_DIR": fresh,
            "GPUCACHE_SYSTEM_DIRS": str(image),
            "PYOPENCL_NO_CACHE": "1",
        }
        return process([*_GPUCACHE, "run", "--", *command], **own)()

    return {"a first start from an image": start}


def _python(script: str, *arguments: object) -> tuple[str, ...]:
    return (sys.executable, "-c", script, *map(str, arguments))
