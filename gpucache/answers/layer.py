"""Outcomes of exporting a layer: which builds of a command its libraries answer by themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpucache.answers.run import Ended


class LayerResult(StrEnum):
    """What became of one build that a command asked for."""

    EXPORTED = "exported"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Layered:
    """One build, each that is asked for alike once."""

    program: str
    target: str
    """What it was for; several targets are joined by commas, and it is empty where nobody knows."""
    result: LayerResult
    reason: str = ""
    """Why it was left."""


@dataclass(frozen=True, slots=True)
class LayerSummary:
    """What was exported of a command, in numbers."""

    command: str
    ended: Ended
    layer: str
    """The folder."""
    exported: int
    left: int
    answers: int
    """How many the layer holds, those of earlier commands among them."""
    size_bytes: int
    """Of its index."""


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
