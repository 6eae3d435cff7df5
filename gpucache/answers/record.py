"""Outcomes of inspecting a recording."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gpucache.answers.run import Ended
from gpucache.answers.told import Instant, told


class Launch(NamedTuple):
    """A local size that a kernel was launched with."""

    kernel: str
    """The kernel's name."""
    size: tuple[int, ...]
    """One to three numbers; none where it was left to the driver."""


@dataclass(frozen=True, slots=True)
class RecordedProgram:
    """A program as it was built for one device."""

    recorded: str
    """Its digest, whose first digits warm --recording has as variant."""
    program: str
    """The program's name."""
    language: str
    """opencl-c or cuda-c++."""
    target: str
    """The target that it was built for."""
    device: tuple[tuple[str, str], ...]
    """What tells its compiler from others, by name."""
    options: tuple[str, ...]
    """Its build options, without include folders."""
    name_expressions: tuple[str, ...]
    """The C++ names that were asked for."""
    source: str
    """The SHA-256 of its source."""
    headers: int
    """How many files it could include."""
    kept: bool
    """Whether the recording holds all that it is made of."""
    local_sizes: tuple[Launch, ...]
    """The local sizes of its kernels."""
    artifact_kind: str
    """What was compiled: cubin, ptx, opencl-binary and others."""
    compile_ns: int
    """The longest time it took; 0 where that is not known."""
    failed: bool
    """Whether it did not compile."""
    first_ns: Instant | None
    """When it was first seen, in UTC."""
    command: str
    """The command that it was first seen in."""


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Builds of a command that were not recorded."""

    reason: str
    """Why, as a sentence."""
    builds: int
    """How many there were."""


@told("command ended.* recording builds unrecorded")
@dataclass(frozen=True, slots=True)
class RecordSummary:
    """What was recorded of a command."""

    command: str
    """The command."""
    ended: Ended
    recording: str
    """The folder that was written."""
    builds: int
    """How many builds were written, each once."""
    unrecorded: int
    """How many were not."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Something of a recording that does not read."""

    file: str
    """The file in the recording's folder."""
    line: int
    """The line, from 1; 0 for the file itself."""
    why: str
    """What is wrong with it."""

    @property
    def place(self) -> str:
        """The file, and the line in it, for people."""
        return f"{self.file}, line {self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """A recording in numbers."""

    builds: int
    """How many there are."""
    programs: int
    """How many sources, each under its name."""
    targets: int
    """How many targets they were built for."""
    failed: int
    """Builds that did not compile."""
    compile_ns: int
    """What all of them took together."""
    without_sources: int
    """Builds of which the recording holds digests alone."""
    damage: tuple[PassedOver, ...]
    """What does not read."""


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
