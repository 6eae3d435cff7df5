"""The results of export: a cache file, or a layer with the builds of a command that its libraries serve."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NamedTuple

from gpucache.answers.console import Block, few, named, plain
from gpucache.answers.run import Ended
from gpucache.answers.run_lines import unseen
from gpucache.json_keys import OrNull, json_keys
from gpucache.units import format_count, format_size, printable


class Source(NamedTuple):
    """A file whose entries were exported."""

    file: str
    entries: Annotated[int, "How many came from it."]


@dataclass(frozen=True, slots=True)
class Exported:
    """A cache file that was written."""

    cache: str
    file: str
    entries: Annotated[int, "Entries in it."]
    size_bytes: Annotated[int, "Bytes on disk."]
    sources: Annotated[tuple[Source, ...], "Where the entries came from."] = ()
    key: Annotated[OrNull, "The key of the one entry, where there is one."] = ""
    notes: Annotated[tuple[str, ...], "The effect of the file on its owner, a sentence each."] = ()


def exported(one: Exported) -> Iterator[Block]:
    entries = format_count(one.entries, "entry", "entries")
    yield plain(f"{one.file}: {entries} for {one.cache}, {format_size(one.size_bytes)}", "bold")
    if one.key:
        yield plain(f"  key: {one.key}")
    for file, count in one.sources:
        yield plain(f"  {file}: {count}")
    yield from (plain(note, "yellow") for note in one.notes)


class LayerResult(StrEnum):
    """The outcome of one build that a command requested."""

    EXPORTED = "exported"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Layered:
    """A build that a command requested; equal requests are one."""

    program: Annotated[str, "The name of its first kernel, or of its file."]
    target: Annotated[OrNull, "Its target, several joined by commas; null if that is not known."]
    result: LayerResult
    reason: Annotated[str, "Why it was left to its compiler."] = ""


@json_keys("command ended.* layer exported left answers size_bytes")
@dataclass(frozen=True, slots=True)
class LayerSummary:
    """The exported builds of a command, in numbers."""

    command: str
    ended: Ended
    layer: Annotated[str, "The directory."]
    exported: Annotated[int, "Builds that are served from there."]
    left: Annotated[int, "Builds that are not."]
    answers: Annotated[int, "The number of builds in the layer, including those of earlier commands."]
    size_bytes: Annotated[int, "The size of its entries and rows."]


def summarise_layer(
    command: str, ended: Ended, layer: str, outcomes: Sequence[Layered], answers: int, size_bytes: int
) -> LayerSummary:
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


def layer_line(summary: LayerSummary) -> str:
    """The builds that were exported, in one line, and how to use them."""
    if not summary.exported:
        why = unseen(summary.ended)
        if summary.left:
            why = f"{format_count(summary.left, 'build was', 'builds were')} left to the command's compilers"
        return f"nothing was exported{'' if summary.answers else ', and no layer is made'}: {why}"
    left = f"; {summary.left} left to their compilers" if summary.left else ""
    return (
        f"exported {format_count(summary.exported, 'build')} to {summary.layer}, which serves "
        f"{summary.answers} ({format_size(summary.size_bytes)}){left}; the environment is in "
        f"{summary.layer}/gpucache.env"
    )


def left(rows: Sequence[Layered], *, whole: bool) -> Iterator[str]:
    """Why builds were left out, each reason once with its count; with ``whole`` every build by its name."""
    found = [row for row in rows if row.result is LayerResult.LEFT]
    if whole:
        for row in found:
            yield printable(
                f"left: {named(row.program or 'a build', row.target or 'an unknown target')}: {row.reason}",
                None,
            )
        return
    reasons = Counter(row.reason for row in found).most_common()
    yield from few([f"left ({number}): {reason}" for reason, number in reasons], whole=False)
