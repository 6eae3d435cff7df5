"""What people are told of a recording: by record at its end, and by inspect."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from gpucache.answers.record import RecordedProgram, RecordingSummary, RecordSummary, Unrecorded
from gpucache.render.grid import Column, Grid, plain
from gpucache.render.run import INNER, unseen
from gpucache.units import format_count, format_duration, format_instant

_DIGITS = 12
_REASONS = 3
"""The most reasons that are told unless everything is."""


def recording(
    rows: Sequence[RecordedProgram], summary: RecordingSummary, *, whole: bool
) -> Iterator[RenderableType]:
    """A row for each build, and the sum; ``whole`` adds when a build was first seen, and by what."""
    grid = Grid(
        (
            Column("program"),
            Column("recorded", whole=True),
            Column("target", shared=True),
            Column("options", prose=True, spare=1),
            Column("sizes", prose=True, spare=2),
            Column("headers", numeric=True, spare=3),
            Column("compile", numeric=True),
            Column("first", whole=True, spare=4),
            Column("by", prose=True, spare=5),
        ),
        every=whole,
    )
    for row in rows:
        grid.add(
            row.program,
            row.recorded if whole else row.recorded[:_DIGITS],
            row.target,
            " ".join((*row.options, *row.name_expressions)),
            _sizes(row),
            str(row.headers) if row.headers else "",
            plain("failed", "red")
            if row.failed
            else format_duration(row.compile_ns)
            if row.compile_ns
            else "",
            format_instant(row.first_ns) if whole and row.first_ns is not None else "",
            row.command if whole else "",
        )
    if rows:
        yield grid
    yield plain(f"\n{_sentence(summary)}", "bold")


def recorded_line(summary: RecordSummary, *, sources: bool = True, inner: bool = False) -> str:
    """What was recorded, in one line, and what can be done with it; ``inner`` for a record within a run."""
    outer = f"; {INNER}" if inner else ""
    if not summary.builds and not summary.unrecorded:
        return f"nothing was recorded: {unseen(summary.ended)}{outer}"
    told = f"recorded {format_count(summary.builds, 'build')} in {summary.recording}"
    left = f"; {summary.unrecorded} not recorded" if summary.unrecorded else ""
    if not summary.builds:
        return f"{told}{left}{outer}"
    warm = f"gpucache warm --recording {summary.recording}"
    use = f"'{warm}' builds what is there" if sources else f"'{warm} --check' says what is lacking"
    return f"{told}{left}; {use}{outer}"


def unrecorded(rows: Sequence[Unrecorded], *, whole: bool) -> Iterator[str]:
    """Why builds were not recorded, each reason once."""
    for row in rows if whole else rows[:_REASONS]:
        yield f"not recorded ({row.builds}): {row.reason}"
    if not whole and len(rows) > _REASONS:
        yield f"{format_count(len(rows) - _REASONS, 'more reason')}; -v tells them"


def _took(row: RecordedProgram) -> str:
    return format_duration(row.compile_ns) if row.compile_ns else ""


def _sizes(row: RecordedProgram) -> str:
    """The local sizes of each kernel; with their kernel where there are several."""
    kernels: dict[str, list[str]] = {}
    for kernel, size in row.local_sizes:
        kernels.setdefault(kernel, []).append("x".join(map(str, size)) or "driver's")
    told = [(kernel, " ".join(sizes)) for kernel, sizes in kernels.items()]
    return told[0][1] if len(told) == 1 else ", ".join(f"{kernel} {sizes}" for kernel, sizes in told)


def _sentence(summary: RecordingSummary) -> str:
    if not summary.builds:
        return "nothing is recorded"
    parts = [
        f"{format_count(summary.builds, 'build')} of {format_count(summary.programs, 'program')} "
        f"for {format_count(summary.targets, 'target')}",
        f"{summary.failed} failed" if summary.failed else "",
        f"{format_duration(summary.compile_ns)} of compiling" if summary.compile_ns else "",
        f"{summary.without_sources} without sources" if summary.without_sources else "",
    ]
    return "; ".join(filter(None, parts))
