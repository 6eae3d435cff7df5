"""Run benchmarks by name; see ``--help``."""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from tests.benchmarks.measure import Comparison, Effort, show, show_growth

ROUNDS = 15
SIZES = (1_000, 10_000, 100_000)
NAMES: Mapping[str, str] = {
    "store-hit": "a checked hit in the store at four sizes, against cuda.core's file cache and a raw read",
    "library-hit": "a hit by compile_program, ProgramCache and build_program, against cuda.core and PyOpenCL",
    "library-start": "a start with a hit by the library, its import and hit, against PyOpenCL and cuda.core",
    "run": "a start below run whose builds hit, against PyOpenCL, cuda.core and the same exported layer",
    "launch": "a start to its first launch with a hit by the library, against peers, on a GPU and on Intel",
    "key": "CUB's key in a fresh process against hashing its headers and ccache, and the gain of its hit",
    "miss": "the overhead of a miss, whole and in parts, against two syncs and the compile",
    "warm": "gpucache warm against a bare process pool, and with hits only",
    "warm-fleet": "warm --check of 200 machine profiles by 500 recorded programs, against reading the files",
    "warm-on": "gpucache warm --on two workers of Dask and of mpiexec against a bare Dask map and at home",
    "processes": "hits by 16 processes against one and cuda.core's cache, and a start of 64 processes",
    "remote-layer": "a start whose 30 hits are in a store elsewhere, against local hits, and many at once",
    "start": "the command's start, against importing click",
    "scale": "inspect, verify and evict of large caches, against find, reading and hashing all, and ccache",
    "scale-triton": "inspect and verify of 5,000 entries of Triton's, against find and reading all",
    "fleet-nodes": "1,000 nodes in one process that fill from one store at 5 to 500 ms, or all send to it",
    "follow-kills": "200 followers killed at random moments beside a job, and the entries that are lost",
    "store-kills": "pushes, pulls, repairs and evictions at once with kills, and the entries that are lost",
    "remote-stores": "push and pull of 500 entries and of one large one, against each store's library alone",
    "remote-triton": "pull of 12 kernels of Triton's, against compiling them",
}
"""Every benchmark with the subject of its measurement; its module has the same name."""


def load(name: str) -> Callable[[Effort], Iterator[Comparison]]:
    """The function of a benchmark, which gives one comparison after the other."""
    run: Callable[[Effort], Iterator[Comparison]]
    run = import_module(f"tests.benchmarks.{name.replace('-', '_')}").run
    return run


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named benchmarks, print a table for each question, and write all results as JSON."""
    told = "\n".join(f"  {name:13} {what}" for name, what in NAMES.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=f"The costs of gpucache against its peers, in one run.\n\n{told}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="+", choices=[*NAMES, "all"], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each side ({ROUNDS})")
    parser.add_argument(
        "--entries", type=int, nargs="+", default=SIZES,
        help=f"sizes of the cache for 'scale' ({', '.join(map(str, SIZES))}); its growth is shown at the end",
    )  # fmt: skip
    parser.add_argument("--stores", nargs="+", default=(), help="kinds of stores for 'remote-stores'")
    parser.add_argument("--at-once", type=int, default=16, help="starts at once for 'remote-layer' (16)")
    parser.add_argument("--small", action="store_true", help="only see that it runs: least sizes, one call")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to a file")
    given = parser.parse_args(arguments)
    effort = Effort(given.rounds, given.small, given.entries, given.stores, given.at_once)
    found: list[dict[str, object]] = []
    for name in NAMES if "all" in given.name else given.name:
        compared: list[Comparison] = []
        for comparison in load(name)(effort):
            show(comparison, sys.stdout)
            compared.append(comparison)
            found.append({"benchmark": name, **comparison.document()})
        if name == "scale" and len(effort.entries) > 1:
            show_growth(compared, effort.entries, sys.stdout)
    if given.json is not None:
        machine = {"processor": platform.processor(), "system": platform.platform()}
        given.json.write_text(json.dumps({**machine, "comparisons": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
