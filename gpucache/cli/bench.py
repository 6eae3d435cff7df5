"""``gpucache bench``: start-up with and without the cache."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucache.cli.globals import given, global_options, leave
from gpucache.cli.parameters import source_options
from gpucache.cli.programs import Named, read_programs

if TYPE_CHECKING:
    from gpucache.engine.warm import WarmItem
    from gpucache.outcomes import BenchCase


@click.command(short_help="Time starts with nothing cached against starts with everything cached.")
@source_options
@click.option(
    "--runs",
    metavar="N",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Pairs of starts, one cold and one warm.",
)
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(0.1),
    default=300.0,
    show_default=True,
    help="Seconds for each start.",
)
@global_options
def bench(
    sources: tuple[Path, ...],
    manifest: Path | None,
    example: bool,
    targets: tuple[str, ...],
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    options: tuple[str, ...],
    local_sizes: tuple[tuple[int, ...], ...],
    runs: int,
    timeout: float,
) -> None:
    """Start each program in fresh processes, cold and warm in turn, and compare.

    Cold: no cache at any layer, drivers' own caches in empty folders. Warm: everything cached, in a
    cache of the benchmark's own. Medians, spread and the ratio of pairs are shown, and the phases
    of a start: context, key, lookup or compile, load, kernels, first launch.
    """
    from gpucache.cli.warm import machine_for, plan
    from gpucache.outcomes import ExitCode
    from gpucache.render import document, tables

    specs = read_programs(Named(sources, manifest, example, include_dirs, defines, options, local_sizes))
    items = plan(specs, targets, machine_for(specs, targets).devices)
    cases = _run(items, runs, timeout)
    failed = sum(case.verdict == "failed" for case in cases)
    summary = {"cases": len(cases), "failed": failed}
    given().document(lambda: document.document("bench", map(document.bench_case, cases), summary))
    given().show(tables.bench(cases))
    if items and all(item.request is None for item in items):
        leave(ExitCode.NOTHING_ATTEMPTED)
    leave(ExitCode.FINDINGS if failed else ExitCode.DONE)


def _run(items: "list[WarmItem]", runs: int, timeout: float) -> "list[BenchCase]":
    from gpucache.assembly import backends, bench_workers
    from gpucache.engine.bench import run_bench
    from gpucache.engine.pool import Bounds
    from gpucache.render.progress import display

    cases: list[BenchCase] = []
    with display(quiet=given().quiet or given().json) as bar:

        def progress(sentence: str) -> None:
            bar.show(len(cases), len(items), sentence)

        for case in run_bench(
            items, bench_workers(), Bounds(timeout_s=timeout), backends(), runs=runs, progress=progress
        ):
            cases.append(case)
    return cases
