"""A recording, told to people: what is in it, and what of it does not read."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.cli.globals import given
from gpucache.cli.streams import complain
from gpucache.units import format_count

if TYPE_CHECKING:
    from gpucache.answers.record import RecordedProgram
    from gpucache.recording.builds import RecordedBuild, Seen
    from gpucache.recording.reading import RecordingFolder

_SHOWN = 5


def show_recording(folder: Path) -> None:
    """Show what a recording holds; raises SourceError where it is none."""
    from gpucache.answers.record import recording, summarise_recording
    from gpucache.recording.reading import read_recording

    found = read_recording(folder)
    rows = [row_of(found, build, seen) for build, seen in found.recording.rows()]
    summary = summarise_recording(rows, found.damage)
    given().answer("inspect", rows, summary, recording(rows, summary, whole=given().whole))
    for one in found.damage[:_SHOWN]:
        complain(f"gpucache: {one.place} of the recording is passed over: {one.why}")
    if len(found.damage) > _SHOWN:
        more = format_count(len(found.damage) - _SHOWN, "more line is", "more lines are")
        complain(f"gpucache: {more} passed over")


def row_of(found: "RecordingFolder", build: "RecordedBuild", seen: "Seen") -> "RecordedProgram":
    """A recorded build as it is shown."""
    from gpucache.answers.record import Launch, RecordedProgram

    when, command = seen.first or (None, "")
    return RecordedProgram(
        recorded=build.digest,
        program=build.program,
        language=build.language.value,
        target=build.target,
        device=build.toolchain,
        options=build.options,
        name_expressions=build.name_expressions,
        source=build.source,
        headers=len(build.headers) + len(build.memory_headers),
        kept=found.has_sources(build),
        local_sizes=tuple(Launch(*one) for one in sorted(seen.local_sizes)),
        artifact_kind=build.artifact_kind,
        compile_ns=seen.compile_ns,
        failed=seen.failed,
        first_ns=when,
        command=command,
    )
