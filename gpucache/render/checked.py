"""What checks cost, as a table."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from gpucache.outcomes import PAPER_ASYNC, PAPER_SYNC, CheckedCase, CheckedMeans, Ratio
from gpucache.render.grid import Column, Grid, plain
from gpucache.units import format_duration


def table(cases: Sequence[CheckedCase], means: Sequence[CheckedMeans]) -> Iterator[RenderableType]:
    """The kernels of every target, their geometric means, and those of the paper."""
    grid = Grid(
        (
            Column("target", shared=True),
            Column("kernel", whole=True),
            Column("kind", prose=True, spare=1),
            Column("without checks", numeric=True),
            Column("async", numeric=True),
            Column("sync", numeric=True),
        )
    )
    for case in cases:
        if not case.error:
            plain_ = format_duration(case.none_ns)
            grid.add(
                case.target, case.kernel, case.kind, plain_, _ratio(case.asynchronous), _ratio(case.sync)
            )
    if means:
        yield grid
        yield Text()
    yield from (plain(f"{case.target}: {case.error}", "red") for case in cases if case.error)
    for one in means:
        figures = f"async {one.asynchronous:.2f}x, sync {one.sync:.2f}x of the time without checks"
        yield plain(f"Geometric mean on {one.target}: {figures}.")
    if means:
        low, high = PAPER_ASYNC
        yield plain(
            f"Henriksen's Bounds Checking on GPU (2021), on two GPUs: async {low:.2f}x to {high:.2f}x, "
            f"sync {PAPER_SYNC[0]:.2f}x to {PAPER_SYNC[1]:.2f}x.",
            "dim",
        )


def _ratio(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
