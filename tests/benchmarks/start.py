"""The command's own start, next to the import of the library that it is made with."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.large_cache import make_cache
from tests.benchmarks.measure import Comparison, Effort, compare, process

_PROGRAMS = 16


def run(effort: Effort) -> Iterator[Comparison]:
    """``--version``, ``--help``, ``inspect`` next to importing click, and ``warm`` with hits only."""
    with tempfile.TemporaryDirectory() as folder:
        make_cache(Path(folder, "root"), 2, 2)
        place: dict[str, Any] = {"GPUCACHE_DIR": f"{folder}/root", "HOME": folder}
        command = [Path(sys.executable).with_name("gpucache")]
        imported = process([sys.executable, "-c", "import click"])
        for title, arguments in (
            ("gpucache --version", ["--version"]),
            ("gpucache --help", ["--help"]),
            ("gpucache inspect --cache gpucache", ["inspect", "--cache", "gpucache"]),
            ("gpucache inspect", ["inspect"]),
        ):
            sides = {title: process([*command, *arguments], **place), "import click": imported}
            yield compare(f"The start of {title}", sides, effort.rounds)
        try:
            import cuda.bindings.nvrtc  # noqa: F401
        except ImportError as error:
            yield Comparison("Warming", (), {"NVRTC": str(error)})
            return
        sources = Path(folder, "sources")
        sources.mkdir()
        programs = 2 if effort.small else _PROGRAMS
        for number in range(programs):
            (sources / f"{number}.cu").write_text(
                f"__global__ void work_{number}(float *x) {{ *x = {number}; }}"
            )
        warm: list[str | Path] = [*command, "warm", sources, "--target", "cuda:sm_90"]
        sides = {
            "gpucache warm": process(warm, **place),
            "gpucache --version": process([*command, "--version"]),
        }
        yield compare(f"Warming {programs} programs that are all there", sides, effort.rounds)
