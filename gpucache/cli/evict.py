"""``gpucache evict``: bound the cache."""

import sys
import time
from typing import TYPE_CHECKING

import click

from gpucache.cli.caches import open_named
from gpucache.cli.globals import given, global_options, leave
from gpucache.cli.parameters import Age, EntryName, Size, TargetName
from gpucache.errors import UsageError

if TYPE_CHECKING:
    from gpucache.engine.policy import Limits
    from gpucache.model import Toolchain
    from gpucache.outcomes import EvictPlan
    from gpucache.settings import Settings

NOTHING_ASKED = (
    "say what may go: --max-size, --older-than, --superseded, --stale, --program, --target or --all"
)


@click.command(short_help="Remove entries by size, age, or what they are.")
@click.option("--cache", metavar="NAME|DIR", help="Which cache, by name or root; default our own.")
@click.option(
    "--max-size",
    metavar="S",
    type=Size(),
    help="Bring a cache above this size, such as 2GiB, down to 80 % of it.",
)
@click.option("--older-than", metavar="A", type=Age(), help="Entries not used for this long, such as 30d.")
@click.option(
    "--superseded", is_flag=True, help="Entries with a newer one for the same program, target and options."
)
@click.option(
    "--stale", is_flag=True, help="Entries built for a device here by a driver or toolchain that has changed."
)
@click.option("--program", metavar="P", type=EntryName(), help="Entries of this program.")
@click.option("--target", metavar="T", type=TargetName(), help="Entries for this target.")
@click.option("--all", "everything", is_flag=True, help="Every entry; asks on a terminal.")
@click.option("--dry-run", is_flag=True, help="Show what would go and stop.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before --all.")
@global_options
def evict(
    cache: str | None,
    max_size: int | None,
    older_than: int | None,
    superseded: bool,
    stale: bool,
    program: str | None,
    target: str | None,
    everything: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove entries that every given filter selects, the least recently used first.

    Without any filter the limit of GPUCACHE_MAX_SIZE is applied.
    """
    from gpucache.engine.evict import plan_evict, run_evict
    from gpucache.engine.policy import Limits
    from gpucache.errors import CacheUnusableError
    from gpucache.outcomes import ExitCode, summarise_evict
    from gpucache.render import document, tables

    opened = open_named(cache)
    asked = Limits(max_size, older_than, superseded, stale, program, target, everything)
    limits = _limits(asked, opened.settings)
    plan = plan_evict(opened.cache, limits, time.time_ns(), _toolchains(limits))
    if dry_run:
        rows = [document.entry(one.entry) | {"rule": one.rule, "removed": False} for one in plan.removals]
        given().document(lambda: document.document("evict", rows, document.evict_plan(plan)))
        given().show(tables.evict_plan(plan))
        return
    if not opened.store.writable:
        raise CacheUnusableError("GPUCACHE_READ_ONLY is set, so nothing is removed; unset it")
    _ask(plan, everything=everything, yes=yes)
    outcomes = list(run_evict(opened.cache, plan))
    summary = summarise_evict(plan, outcomes)
    given().document(
        lambda: document.document("evict", map(document.removal, outcomes), document.evict_summary(summary))
    )
    given().show(tables.evict(outcomes, summary))
    leave(ExitCode.DONE if all(one.removed for one in outcomes) else ExitCode.FINDINGS)


def _limits(asked: "Limits", settings: "Settings") -> "Limits":
    from gpucache.engine.policy import Limits

    if asked.everything and (asked.filters or asked.max_size_bytes is not None):
        raise UsageError("--all stands alone; leave the other filters out")
    if not asked.empty:
        return asked
    if settings.max_size_bytes is None:
        raise UsageError(f"{NOTHING_ASKED}; or set GPUCACHE_MAX_SIZE")
    return Limits(max_size_bytes=settings.max_size_bytes)


def _toolchains(limits: "Limits") -> "list[Toolchain]":
    """Who compiles here: asked only where it matters."""
    if not limits.stale:
        return []
    from gpucache.probe import ask

    return [device.toolchain for device in ask() if device.toolchain is not None]


def _ask(plan: "EvictPlan", *, everything: bool, yes: bool) -> None:
    if not everything or yes or not plan.removals:
        return
    if not sys.stdin.isatty():
        raise UsageError("--all removes everything, and nobody is there to be asked; say --yes")
    click.confirm(f"Remove all {len(plan.removals)} entries?", abort=True, err=True)
