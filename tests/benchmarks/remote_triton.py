"""Pull of Triton's kernels from a directory, next to Triton compiling them ahead of time.

A program's other costs, its start and the import of Triton, are in neither. After each pull Triton reports a
hit for every kernel.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpucache.remote.signing import TrustedKeys, load_signing_key, make_pair
from tests.benchmarks.measure import Comparison, Effort, Sample, compare, process
from tests.benchmarks.remote_stores import MODE_OF_SEVERAL, pull_all, push_all, timed
from tests.contracts.examples import open_example

_KERNELS, _ROUNDS = 12, 3
_PROGRAM = """
import sys, time, triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0) * n, tl.arange(0, BLOCK)
    value = tl.load(x + row + at, at < n, other=-float("inf"))
    grown = tl.exp(value - tl.max(value, 0))
    tl.store(y + row + at, grown / tl.sum(grown, 0), at < n)

@triton.jit
def norm(x, y, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0) * n, tl.arange(0, BLOCK)
    value = tl.load(x + row + at, at < n, other=0.0)
    apart = tl.where(at < n, value - tl.sum(value, 0) / n, 0.0)
    tl.store(y + row + at, apart / tl.sqrt(tl.sum(apart * apart, 0) / n + 1e-5), at < n)

@triton.jit
def matmul(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK // 16)
    sums = tl.zeros((BLOCK // 16, BLOCK // 16), tl.float32)
    for start in range(0, n, BLOCK // 16):
        left = tl.load(x + at[:, None] * n + start + at[None, :])
        right = tl.load(y + (start + at[:, None]) * n + at[None, :])
        sums += tl.dot(left, right)
    tl.store(y + at[:, None] * n + at[None, :], sums)

hits = []
triton.knobs.compilation.listener = lambda cache_hit, **_: hits.append(cache_hit)
wall, cpu = time.perf_counter_ns(), time.process_time_ns()
made = [(kernel, block) for block in (256, 512, 1024, 2048) for kernel in (softmax, norm, matmul)]
for kernel, block in made[:int(sys.argv[1])]:
    types = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(kernel, types, constexprs={"BLOCK": block})
    triton.compile(source, target=GPUTarget("cuda", 90, 32))
print(time.perf_counter_ns() - wall, time.process_time_ns() - cpu, sum(hits))
"""


def run(effort: Effort) -> Iterator[Comparison]:
    """By the function and by the whole command."""
    kernels = 2 if effort.small else _KERNELS
    title = f"{kernels} kernels of Triton's for sm_90"
    if importlib.util.find_spec("triton") is None:
        yield Comparison(title, (), {"Triton": "it is not installed"})
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        program, made, pulled, store = (place / name for name in ("program.py", "made", "pulled", "store"))
        program.write_text(_PROGRAM, encoding="ascii")
        public = make_pair(place / "key")
        store.mkdir()
        store.chmod(MODE_OF_SEVERAL)

        def compiled(root: Path) -> tuple[Sample, int]:
            done = subprocess.run(
                [sys.executable, program, str(kernels)],
                env={**os.environ, "TRITON_CACHE_DIR": str(root)},
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
            )  # fmt: skip
            wall, cpu, hits = map(int, done.stdout.split())
            return Sample(wall, cpu), hits

        def compiling() -> Sample:
            shutil.rmtree(made, ignore_errors=True)
            sample, hits = compiled(made)
            assert not hits
            return sample

        def pulling() -> Sample:
            shutil.rmtree(pulled, ignore_errors=True)
            cache, trusted = open_example("triton", pulled), TrustedKeys({public.id: public})
            sample = timed(lambda: pull_all(cache, str(store), trusted, kernels))
            assert compiled(pulled)[1] == kernels
            return sample

        command = process(
            [sys.executable, "-m", "gpucache", "pull", str(store), "--cache", f"triton:{pulled}"],
            before=lambda: shutil.rmtree(pulled, ignore_errors=True),
            GPUCACHE_TRUSTED_KEYS=str(place / "key.pub"), HOME=folder,
        )  # fmt: skip
        compiling()
        push_all(open_example("triton", made), str(store), load_signing_key(place / "key"))
        rounds = min(effort.rounds, _ROUNDS)
        yield compare(title, {"gpucache's pull": pulling, "compiling": compiling}, rounds)
        yield compare(title, {"gpucache pull, the command": command, "compiling": compiling}, rounds)
