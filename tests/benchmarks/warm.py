"""``gpucache warm`` next to a bare process pool that does the same compiles with as many workers.

The pool does only the indispensable: it starts workers, has NVRTC compile, and writes the results into
files. It makes no key, trusts every worker, and keeps no record.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.measure import Comparison, Effort, compare, process

_PROGRAMS, _JOBS = 16, 2
_ROUNDS = 5
"""At most: a run takes seconds."""
SOURCE = """
extern "C" __global__ void work_{0}(float *x)
{{
    float a[{1}];
#pragma unroll
    for (int i = 0; i < {1}; ++i)
        a[i] = x[threadIdx.x + i] * {0}.5f;
#pragma unroll
    for (int step = 1; step < {1}; step *= 2)
#pragma unroll
        for (int i = 0; i < {1}; ++i)
            a[i] = sinf(a[i]) + a[(i + step) % {1}];
#pragma unroll
    for (int i = 0; i < {1}; ++i)
        x[threadIdx.x + i] = a[i];
}}
"""
COMPILED = """
def compiled(source):
    from cuda.bindings import nvrtc
    _, program = nvrtc.nvrtcCreateProgram(source, b"program.cu", 0, [], [])
    assert nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=sm_90"])[0] == 0
    cubin = bytes(nvrtc.nvrtcGetCUBINSize(program)[1])
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(program)
    return cubin
"""
_POOL = f"""
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

{COMPILED}
if __name__ == "__main__":
    sources, out, jobs = sorted(Path(sys.argv[1]).glob("*.cu")), Path(sys.argv[2]), int(sys.argv[3])
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for source, cubin in zip(sources, pool.map(compiled, (source.read_bytes() for source in sources))):
            (out / f"{{source.stem}}.cubin").write_bytes(cubin)
"""


def run(effort: Effort) -> Iterator[Comparison]:
    """Many compiles; ``start`` measures the same again where all of them are hits."""
    programs, size = (2, 4) if effort.small else (_PROGRAMS, 16)
    try:
        import cuda.bindings.nvrtc  # noqa: F401
    except ImportError as error:
        yield Comparison("Warming", (), {"NVRTC": str(error)})
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sources = place / "sources"
        sources.mkdir()
        for number in range(programs):
            (sources / f"work_{number}.cu").write_text(SOURCE.format(number, size))
        (place / "pool.py").write_text(_POOL)
        jobs = str(_JOBS)
        warm: list[str | Path] = [sys.executable, "-m", "gpucache", "warm", sources, "--target", "cuda:sm_90"]
        pool: list[str | Path] = [sys.executable, place / "pool.py", sources, place / "out", jobs]
        sides = {
            "gpucache warm": process(
                [*warm, "--root", place / "cold", "--jobs", jobs], before=lambda: empty(place / "cold")
            ),
            "a bare pool": process(pool, before=lambda: empty(place / "out")),
        }
        yield compare(f"{programs} compiles by {_JOBS} workers", sides, min(effort.rounds, _ROUNDS))


def empty(folder: Path) -> None:
    """Make a directory empty, and wait for the disk."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(0o700)
    os.sync()  # so that no program waits for earlier writes
