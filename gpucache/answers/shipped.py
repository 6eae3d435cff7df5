"""Compiled files that somebody shipped: for which architectures they have machine code, for which PTX."""

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple, TypedDict

from gpucache.answers.console import Block, Column, Grid, plain
from gpucache.units import format_count, format_list

_NONE = "-"
PACKED = "gfx?"
"""The architectures of code for AMD's GPUs that is compressed."""


class Shipped(NamedTuple):
    """A library, a package or another compiled file."""

    file: Annotated[str, "Its path."]
    kind: Annotated[str, "The kind of file: library, package, fatbin, cubin, ptx and others."]
    machine_code: Annotated[tuple[str, ...], "The architectures with machine code: sm_90, gfx942."]
    ptx: Annotated[tuple[str, ...], "Architectures with PTX, which newer GPUs compile at first start."]
    runs_on: Annotated[tuple[str, ...], "The targets of --device-profile that have machine code."] = ()
    compiles_for: Annotated[tuple[str, ...], "The targets of --device-profile that only have PTX."] = ()
    lacks: Annotated[tuple[str, ...], "The targets of --device-profile that have neither."] = ()
    problem: Annotated[str, "Why it cannot be read whole; empty if it can."] = ""
    damaged: Annotated[bool, "Whether that is damage, and not a format that gpucache cannot parse."] = False


class ShippedSummary(TypedDict):
    """Files that somebody shipped."""

    files: Annotated[int, "How many there are."]
    unfit: Annotated[int, "How many have no code for a device of --device-profile, or are damaged."]


def shipped(found: Sequence[Shipped], *, profile: bool, verdict: bool = False) -> Iterator[Block]:
    """A row for each file, sentences about those that do not fit, and the ``verdict`` on all."""
    columns = (
        Column("file", lambda one: one.file, place=True),
        Column("kind", lambda one: one.kind),
        Column("machine code", lambda one: " ".join(one.machine_code) or _NONE, prose=True),
        Column("PTX", lambda one: " ".join(one.ptx) or _NONE, prose=True),
    )
    yield Grid(columns, found)
    for one in found:
        for sentence in _sentences(one, profile=profile):
            yield plain(f"{one.file}: {sentence}")
    if verdict:
        damaged = sum(one.damaged for one in found)
        unfit = sum(bool(one.lacks) for one in found)
        told = [f"{damaged} damaged"] * bool(damaged) + [f"{unfit} without code for a device"] * bool(unfit)
        yield plain(f"\n{format_count(len(found), 'file')} checked: {', '.join(told) or 'no fault found'}")


def _sentences(one: Shipped, *, profile: bool) -> Iterator[str]:
    if one.problem:
        yield one.problem
    if PACKED in one.machine_code:
        yield "its code for AMD's GPUs is compressed, which hides for which of them it is"
    if one.lacks:
        yield f"no code for {format_list(one.lacks, 8)}: programs fail there; build it for these"
    if one.compiles_for:
        yield f"only PTX for {format_list(one.compiles_for, 8)}: the driver compiles it at the first start"
    if profile and one.runs_on:
        yield f"machine code for {format_list(one.runs_on, 8)}"
    elif not profile and one.ptx and not one.machine_code:
        yield "only PTX: the driver compiles it at the first start"
