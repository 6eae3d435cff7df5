"""The results of devices: the targets of a machine, and the differences that split a cache of two."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from gpucache.answers.console import Block, Column, Grid, plain
from gpucache.json_keys import json_keys
from gpucache.keys import Difference
from gpucache.model import Device
from gpucache.units import format_list

_TARGETS_SHOWN = 2


@json_keys("target difference.*")
class TargetDifference(NamedTuple):
    """A key field that differs between two machines."""

    target: Annotated[str, "The target it is a field of."]
    difference: Difference


def devices(rows: Sequence[Device], *, whole: bool = False) -> Iterator[Block]:
    """Every target that can be named, then missing ones and why, in sentences; toolchains if ``whole``."""
    here = [row for row in rows if row.target is not None and row.present]
    named = [row for row in rows if row.target is not None and not row.present]
    columns = (
        Column("target", lambda row: str(row.target), whole=True),
        Column("device", lambda row: row.name),
        Column("driver", lambda row: row.driver_version, whole=True),
        Column("state", lambda row: "" if row.available else "not available", whole=True),
    )
    if here:
        yield Grid(columns, here)
    for row in here if whole else ():
        yield plain(f"\n{row.target}", "bold")
        for label, value in row.toolchain.fields if row.toolchain else ():
            yield plain(f"  {label}: {value}")
    for detail in dict.fromkeys(row.detail for row in named):
        targets = [str(row.target) for row in named if row.detail == detail]
        real = [target for target in targets if "compute_" not in target]
        yield plain(f"\n{detail}; each of these can be a --target:")
        yield plain(textwrap.fill(" ".join(real), 80, break_on_hyphens=False))
        if len(real) < len(targets):
            yield plain("and cuda:compute_N with the same numbers, for PTX.")
    for row in rows:
        if not row.available:
            yield plain(f"\n{row.target or row.name}: {row.detail}", "yellow")


def comparison(found: Sequence[tuple[str, Difference]], left: str, right: str) -> Iterator[Block]:
    """The fields that differ between two machines, each once and with the targets that have it."""
    if not found:
        yield plain("No differences: both machines can share a cache.", "green")
        return
    targets: dict[Difference, list[str]] = {}
    for target, item in found:
        targets.setdefault(item, []).append(target)
    for item, own in targets.items():
        yield plain(f"{item.label}: {format_list(own, _TARGETS_SHOWN)}", "bold")
        for name, value in zip((left, right), item.apart(), strict=True):
            yield plain(f"  {name}: {'none' if value is None else value or '(empty)'}")
