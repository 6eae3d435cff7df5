"""Outcomes of exporting a layer: which builds of a command its libraries answer by themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpucache.answers.run import Ended
from gpucache.answers.told import OrNull, told


class LayerResult(StrEnum):
    """What became of one build that a command asked for."""

    EXPORTED = "exported"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Layered:
    """A build that a command asked for; what is asked for alike stands there once."""

    program: str
    """The name of its first kernel, or of its file."""
    target: OrNull
    """What it was for, several targets joined by commas; null where that is not known."""
    result: LayerResult
    """What became of it."""
    reason: str = ""
    """Why it was left to its compiler."""


@told("command ended.* layer exported left answers size_bytes")
@dataclass(frozen=True, slots=True)
class LayerSummary:
    """What was exported of a command, in numbers."""

    command: str
    """The command."""
    ended: Ended
    layer: str
    """The folder."""
    exported: int
    """Builds that are served from there."""
    left: int
    """Builds that are not."""
    answers: int
    """How many it holds, those of earlier commands among them."""
    size_bytes: int
    """The size of its index."""


def summarise_layer(
    command: str, ended: Ended, layer: str, outcomes: Sequence[Layered], answers: int, size_bytes: int
) -> LayerSummary:
    """The summary of an export."""
    exported = sum(one.result is LayerResult.EXPORTED for one in outcomes)
    return LayerSummary(
        command=command,
        ended=ended,
        layer=layer,
        exported=exported,
        left=len(outcomes) - exported,
        answers=answers,
        size_bytes=size_bytes,
    )
