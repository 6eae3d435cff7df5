"""``gpucache warm --on`` with two workers next to a bare Dask map on the same workers, and a local ``warm``.

The bare map does only the indispensable: it sends the sources, has NVRTC compile them in the processes
of the workers, and writes the results into files. It makes no key, trusts every worker, and loses a
worker with each compiler that crashes. CPU time is that of the command, without the workers of Dask.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from _pytest.outcomes import Skipped

from tests.benchmarks.measure import Comparison, Effort, compare, process
from tests.benchmarks.warm import COMPILED, SOURCE, empty
from tests.clusters import Dask, Mpi

_PROGRAMS, _SIZE = 36, 8
_ROUNDS = 3
"""At most: a run takes many seconds."""
_MAP = f"""
import sys
from distributed import Client
from pathlib import Path
{COMPILED}
if __name__ == "__main__":
    sources, out = sorted(Path(sys.argv[1]).glob("*.cu")), Path(sys.argv[2])
    with Client(sys.argv[3]) as client:
        futures = client.map(compiled, [source.read_bytes() for source in sources], pure=False)
        for source, cubin in zip(sources, client.gather(futures)):
            (out / f"{{source.stem}}.cubin").write_bytes(cubin)
"""


def run(effort: Effort) -> Iterator[Comparison]:
    programs, size = (2, 4) if effort.small else (_PROGRAMS, _SIZE)
    title = f"{programs} compiles by 2 workers of a cluster"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        place = Path(folder)
        sources, root, out = place / "sources", place / "root", place / "out"
        for each in (sources, place / "dask", place / "mpi"):
            each.mkdir()
        for number in range(programs):
            (sources / f"work_{number}.cu").write_text(SOURCE.format(number, size))
        (place / "map.py").write_text(_MAP)
        words = ("--root", root, "warm", sources, "--target", "cuda:sm_90")
        try:
            import cuda.bindings.nvrtc  # noqa: F401

            dask = Dask(place / "dask", [{}, {}])
        except ImportError as error:
            yield Comparison(title, (), {"Dask": str(error)})
            return
        ends.callback(dask.close)
        bare: list[str | Path] = [sys.executable, place / "map.py", sources, out, dask.address]
        home: list[str | Path] = [sys.executable, "-m", "gpucache", *map(str, words), "--jobs", "2"]
        sides = {
            "warm --on dask": process(dask.command(words), before=lambda: empty(root)),
            "a bare map": process(bare, before=lambda: empty(out)),
            "warm": process(home, before=lambda: empty(root)),
        }
        try:
            mpi = Mpi(place / "mpi", [{}, {}])
            variables = {"LD_LIBRARY_PATH": mpi.environ["LD_LIBRARY_PATH"]}
            sides["warm --on mpi"] = process(mpi.command(words), before=lambda: empty(root), **variables)
        except Skipped:
            pass
        yield compare(title, sides, min(effort.rounds, _ROUNDS))
