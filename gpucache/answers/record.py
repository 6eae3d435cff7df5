"""Outcomes of inspecting a recording."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpucache.answers.run import Ended


@dataclass(frozen=True, slots=True)
class RecordedProgram:
    """One recorded build, as it is shown."""

    recorded: str
    """Its digest."""
    program: str
    language: str
    target: str
    device: tuple[tuple[str, str], ...]
    """What tells its compiler from others: platform, device, driver."""
    options: tuple[str, ...]
    name_expressions: tuple[str, ...]
    source: str
    """SHA-256."""
    headers: int
    """How many files it could include."""
    kept: bool
    """Whether the recording holds all that it is made of."""
    local_sizes: tuple[tuple[str, tuple[int, ...]], ...]
    """Kernels with the sizes that they were launched with; an empty size was left to the driver."""
    artifact_kind: str
    compile_ns: int
    """The longest that was seen; 0 where none was."""
    failed: bool
    first_ns: int | None
    command: str


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Builds of a command that were not recorded."""

    reason: str
    builds: int


@dataclass(frozen=True, slots=True)
class RecordSummary:
    """What was recorded of a command."""

    command: str
    ended: Ended
    recording: str
    """Its folder."""
    builds: int
    """How many builds were written, each once."""
    unrecorded: int


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Something in a recording that does not read."""

    file: str
    line: int
    """Counted from 1; 0 for the file itself."""
    why: str

    @property
    def place(self) -> str:
        """The file, and the line in it, for people."""
        return f"{self.file}, line {self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """A recording in numbers."""

    builds: int
    programs: int
    targets: int
    failed: int
    compile_ns: int
    without_sources: int
    damage: tuple[PassedOver, ...]


def summarise_recording(rows: Iterable[RecordedProgram], damage: tuple[PassedOver, ...]) -> RecordingSummary:
    """The summary of what a recording holds."""
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
