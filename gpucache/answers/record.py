"""The results of record and of inspecting a recording: the builds recorded and those not recorded."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from gpucache.answers.console import Block, Cell, Column, Grid, few, plain
from gpucache.answers.run import Ended
from gpucache.answers.run_lines import INNER, unseen
from gpucache.json_keys import Instant, json_keys
from gpucache.units import format_count, format_duration, format_instant

_DIGITS = 12


class Launch(NamedTuple):
    """A local size that a kernel was launched with."""

    kernel: Annotated[str, "The kernel's name."]
    size: Annotated[tuple[int, ...], "One to three numbers; none where it was left to the driver."]


@dataclass(frozen=True, slots=True)
class RecordedProgram:
    """A program as it was built for one device."""

    recorded: Annotated[str, "Its digest; warm --recording shows its first digits as the variant."]
    program: str
    language: Annotated[str, "opencl-c or cuda-c++."]
    target: Annotated[str, "The target that it was built for."]
    device: Annotated[tuple[tuple[str, str], ...], "The fields that identify its compiler, by name."]
    options: Annotated[tuple[str, ...], "Its build options, without include directories."]
    name_expressions: Annotated[tuple[str, ...], "The C++ names that were requested."]
    source: Annotated[str, "The SHA-256 of its source."]
    headers: Annotated[int, "How many files it could include."]
    kept: Annotated[bool, "Whether the recording has its source and headers."]
    local_sizes: Annotated[tuple[Launch, ...], "The local sizes of its kernels."]
    artifact_kind: Annotated[str, "The kind of binary: cubin, ptx, opencl-binary and others."]
    compile_ns: Annotated[int, "The longest time it took; 0 where that is not known."]
    failed: Annotated[bool, "Whether it did not compile."]
    first_ns: Annotated[Instant | None, "When it was first seen, in UTC."]
    command: Annotated[str, "The command that it was first seen in."]


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Builds of a command that were not recorded."""

    reason: Annotated[str, "Why, as a sentence."]
    builds: Annotated[int, "How many there were."]


@json_keys("command ended.* recording builds unrecorded")
@dataclass(frozen=True, slots=True)
class RecordSummary:
    """The recorded builds of a command."""

    command: str
    ended: Ended
    recording: Annotated[str, "The directory that was written."]
    builds: Annotated[int, "How many builds were written, each once."]
    unrecorded: Annotated[int, "How many were not."]
    failed: int = 0
    """How many of the written builds did not compile, so that warm leaves them out."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A part of a recording that cannot be parsed."""

    file: Annotated[str, "The file in the recording's directory."]
    line: Annotated[int, "The line, from 1; 0 for the file itself."]
    why: Annotated[str, "Its problem."]

    @property
    def place(self) -> str:
        """The file, and the line in it, for people."""
        return f"{self.file}, line {self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """A recording in numbers."""

    builds: Annotated[int, "How many there are."]
    programs: Annotated[int, "How many sources, each under its name."]
    targets: Annotated[int, "How many targets they were built for."]
    failed: Annotated[int, "Builds that did not compile."]
    compile_ns: Annotated[int, "The time that all of them took together."]
    without_sources: Annotated[int, "Builds of which the recording has only digests."]
    damage: Annotated[tuple[PassedOver, ...], "The parts that cannot be read."]


def summarise_recording(rows: Iterable[RecordedProgram], damage: tuple[PassedOver, ...]) -> RecordingSummary:
    rows = tuple(rows)
    return RecordingSummary(
        builds=len(rows),
        programs=len({(row.program, row.source) for row in rows}),
        targets=len({row.target for row in rows}),
        failed=sum(row.failed for row in rows),
        compile_ns=sum(row.compile_ns for row in rows),
        without_sources=sum(not row.kept for row in rows),
        damage=damage,
    )


def recording(rows: Sequence[RecordedProgram], summary: RecordingSummary, *, whole: bool) -> Iterator[Block]:
    """A row for each build, and the sum; ``whole`` adds when a build was first seen, and by which command."""
    columns = (
        Column("program", lambda row: row.program),
        Column("recorded", lambda row: row.recorded if whole else row.recorded[:_DIGITS], whole=True),
        Column("target", lambda row: row.target, shared=True),
        Column("options", lambda row: " ".join((*row.options, *row.name_expressions)), prose=True, spare=1),
        Column("sizes", _sizes, prose=True, spare=2),
        Column("headers", lambda row: str(row.headers or ""), numeric=True, spare=3),
        Column("compile", _took, numeric=True),
        Column("first", lambda row: _first(row) if whole else "", whole=True, spare=4),
        Column("by", lambda row: row.command if whole else "", prose=True, spare=5),
    )
    if rows:
        yield Grid(columns, rows, every=whole)
    yield plain(f"\n{_sentence(summary)}", "bold")


def recorded_line(summary: RecordSummary, *, sources: bool = True, inner: bool = False) -> str:
    """The recorded builds, in one line, and how to use them; ``inner`` for a record within a run."""
    outer = f"; {INNER}" if inner else ""
    if not summary.builds and not summary.unrecorded:
        return f"nothing was recorded: {unseen(summary.ended)}{outer}"
    told = f"recorded {format_count(summary.builds, 'build')} in {summary.recording}"
    left = f"; {summary.failed} did not compile" if summary.failed else ""
    left += f"; {summary.unrecorded} not recorded" if summary.unrecorded else ""
    if summary.failed == summary.builds:
        return f"{told}{left}{outer}"
    warm = f"gpucache warm --recording {summary.recording}"
    use = f"'{warm}' builds them" if sources else f"'{warm} --check' lists the missing builds"
    return f"{told}{left}; {use}{outer}"


def unrecorded(rows: Sequence[Unrecorded], *, whole: bool) -> Iterator[str]:
    yield from few([f"not recorded ({row.builds}): {row.reason}" for row in rows], whole=whole)


def _took(row: RecordedProgram) -> Cell:
    if row.failed:
        return plain("failed", "red")
    return format_duration(row.compile_ns) if row.compile_ns else ""


def _first(row: RecordedProgram) -> str:
    return "" if row.first_ns is None else format_instant(row.first_ns)


def _sizes(row: RecordedProgram) -> str:
    """The local sizes of each kernel; with their kernel if there are several."""
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
