"""``gpucache evict``: bound the cache."""

import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import click

from gpucache.caches.registry import OWN
from gpucache.cli.caches import Opened, cache_option, finish, found_or_unread, open_named
from gpucache.cli.globals import given, global_options
from gpucache.cli.machines import toolchains_for
from gpucache.cli.parameters import Age, EntryName, Size, TargetName, field
from gpucache.cli.streams import complain
from gpucache.errors import CacheUnusableError, ExitCode, UsageError
from gpucache.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpucache.answers.entries import CacheEntry
    from gpucache.answers.evict import EvictOutcome, EvictSummary
    from gpucache.caches.interface import Cache
    from gpucache.engine.evict import EvictPlan, Limits

    Plans = Sequence[tuple[Cache, EvictPlan]]

_TOLD = 5
"""How many of the things that stay in a cache are reported one by one."""
NOTHING_ASKED = (
    "say what may go: --max-size, --older-than, --superseded, --stale, --unlike, --program, --target or --all"
)


@click.command()
@cache_option
@click.option(
    "--max-size",
    metavar="S",
    type=Size(),
    help="Bring what is above this size, such as 2GiB, down to 80 % of it; of several caches, their sum.",
)
@click.option("--older-than", metavar="A", type=Age(), help="Entries not used for this long, such as 30d.")
@click.option(
    "--superseded", is_flag=True, help="Entries with a newer one for the same program, target and options."
)
@click.option(
    "--stale",
    is_flag=True,
    help="Entries that nobody here reads again: their driver or interpreter is another by now.",
)
@click.option(
    "--unlike",
    metavar="FIELD=VALUE",
    multiple=True,
    help="Entries with a key field, as inspect names it, of another value: hip_version=6.2.41133.",
)
@click.option("--program", metavar="P", type=EntryName(), help="Entries of this program.")
@click.option("--target", metavar="T", type=TargetName(), help="Entries for this target.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every entry, and all that our own cache keeps beside them; asks on a terminal.",
)
@click.option("--dry-run", is_flag=True, help="Show what would go and stop.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before --all.")
@global_options
def evict(
    cache: tuple[str, ...],
    max_size: int | None,
    older_than: int | None,
    superseded: bool,
    stale: bool,
    unlike: tuple[str, ...],
    program: str | None,
    target: str | None,
    everything: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove entries that every given filter selects, the least recently used first.

    Over several caches --max-size bounds their sum: what was used least lately, is large and was quick
    to compile, where its owner stores that, goes first, and what gpucache does not remove counts.
    Without any filter the limit of GPUCACHE_MAX_SIZE is applied, or a foreign cache's own. In the
    caches of others every removal keeps to their owner's rules and locks, and files that the
    owner would not name so are left. --dry-run says what a run would do, refusals included.
    """
    from gpucache.answers import evict as text
    from gpucache.answers.evict import EvictSummary
    from gpucache.engine.evict import Limits

    opened = open_named(cache, systems=False)
    fields = tuple(field("--unlike", text, "; write it as hip_version=6.2.41133") for text in unlike)
    asked = Limits(max_size, older_than, superseded, stale, fields, program, target, everything)
    shown = dry_run or given().json or given().whole
    plans = _plans(opened, asked, heads=shown or not everything)
    if dry_run:
        _show_plans(opened, plans, everything=everything)
        return
    if opened.settings.read_only:
        raise CacheUnusableError("GPUCACHE_READ_ONLY is set, so nothing is removed; unset it")
    if everything and not yes:
        _ask(plans)
    summary, said = EvictSummary(), list[str]()
    outcomes = _run(opened, plans, asked, summary, said)
    told = text.Evictions(whole=given().whole)
    try:
        given().document("evict", outcomes, summary)
        for outcome in outcomes:
            told.add(outcome)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{summary.removed} were removed, and the rest stays") from None
    given().show(told.done(summary))
    for sentence in (*said, *summary.left):
        given().say(sentence)
    finish(opened, ExitCode.FINDINGS if summary.stay else ExitCode.DONE)


def _run(
    opened: Opened, plans: "Plans", asked: "Limits", summary: "EvictSummary", said: list[str]
) -> "Iterator[EvictOutcome]":
    """Remove the planned entries; at the end, ``summary`` and the sentences in ``said`` are complete."""
    from gpucache.answers.evict import ALL, EvictSummary
    from gpucache.engine.evict import run_evict

    emptied = []
    for cache, plan in plans:
        own = EvictSummary()
        try:
            yield from own.of(run_evict(cache, plan, own.keep))
        finally:
            summary.include(own)
        if own.chosen:
            said += cache.finish_removals()
        if asked.everything and not own.stay:
            emptied.append(cache)
    for one in opened.owns:
        rule = ALL if one.cache in emptied and not one.cache.unread() else ""
        said += [told for told in [one.cache.sweep(_max_size(asked, one.cache), rule)] if told]
    summary.left = tuple(_left(plans)) if asked.everything else ()
    summary.unread = opened.unread


def _show_plans(opened: Opened, plans: "Plans", *, everything: bool) -> None:
    """Show which entries would be removed."""
    from gpucache.answers import evict as text
    from gpucache.answers.evict import Foreseen
    from gpucache.engine.evict import foresee

    total, owns = Foreseen(left=tuple(_left(plans)) if everything else ()), [Foreseen() for _ in plans]

    def foreseen() -> "Iterator[EvictOutcome]":
        for own, (_, plan) in zip(owns, plans, strict=True):
            yield from own.of(foresee(plan, own.keep))
            total.include(own)
        total.unread = opened.unread

    outcomes = foreseen()
    told = text.Evictions(whole=given().whole)
    given().document("evict", outcomes, total)
    for outcome in outcomes:
        told.add(outcome)
    given().show(told.plan(total))
    places = [cache.location() for cache, _ in plans]
    given().show(text.evict_caches(list(zip(places, owns, strict=True))))
    for sentence in total.left:
        given().say(sentence)
    finish(opened, ExitCode.FINDINGS if total.stay else ExitCode.DONE)


def _plans(opened: Opened, asked: "Limits", *, heads: bool) -> "Plans":
    from gpucache.engine.evict import entries_of, plan_each, plan_together

    if asked.everything and (asked.filters or asked.max_size_bytes is not None):
        raise UsageError("--all stands alone; leave the other filters out")
    now_ns = time.time_ns()
    limits = [_limits(asked, cache) for cache in opened.caches]
    every = [entries_of(cache, heads=heads) for cache in opened.caches]
    with found_or_unread(opened):
        _require_names(asked, every)
    if asked.max_size_bytes is not None and len(every) > 1:
        together = plan_together(every, asked, now_ns, toolchains_for)
        return list(zip(opened.caches, together, strict=True))
    plans = plan_each(list(zip(every, limits, strict=True)), now_ns, toolchains_for)
    return list(zip(opened.caches, plans, strict=True))


def _require_names(asked: "Limits", every: "Sequence[Iterable[CacheEntry]]") -> None:
    """Raise UsageError for a name that no entry has: it was mistyped, and would seem to keep everything."""
    from gpucache.engine.evict import matches_program, matches_target

    known = {entry.fields: None for entry in chain(*every)} if asked.unlike else {}
    labels = {name for fields in known for name, _ in fields}
    for label, _ in asked.unlike:
        if known and label not in labels:
            told = f"--unlike takes one of {', '.join(sorted(labels))}" if labels else "they have none at all"
            raise UsageError(f"no entry has a field {label!r}; {told}")
    for what, name, matches in (
        ("program", asked.program, matches_program),
        ("target", asked.target, matches_target),
    ):
        if name is not None and not any(matches(entry, name) for entry in chain(*every)):
            raise UsageError(
                f"no entry is of the {what} {name!r}; run 'gpucache inspect --list' to see the entries"
            )


def _limits(asked: "Limits", cache: "Cache") -> "Limits":
    """The limits of the command line, or the cache's own limit if there are none."""
    limit_bytes = _max_size(asked, cache)
    if asked.empty and limit_bytes is None:
        own = "; or set GPUCACHE_MAX_SIZE" if cache.name == OWN else ""
        raise UsageError(f"{NOTHING_ASKED}{own}")
    return replace(asked, max_size_bytes=limit_bytes)


def _max_size(asked: "Limits", cache: "Cache") -> int | None:
    return cache.location().limit_bytes if asked.empty else asked.max_size_bytes


def _left(plans: "Plans") -> list[str]:
    """Sentences about files in caches that are not entries; they stay, as they may be another program's."""

    told: list[str] = []
    for cache, _ in plans:
        place = f"{cache.name}:{cache.location().root}"
        with suppress(CacheUnusableError):
            found = [finding for checked in cache.leftovers() for finding in checked.findings]
            told += [f"left in {place}: {one.entry}: {one.detail}" for one in found[:_TOLD]]
            if found[_TOLD:]:
                told.append(
                    f"left in {place}: {len(found) - _TOLD} more; run 'gpucache verify --cache {place}'"
                )
    return told


def _ask(plans: "Plans") -> None:
    """Ask before removing everything, naming every place; raises UsageError if stdin cannot be asked."""
    counted = [(cache, sum(1 for _ in plan.removals())) for cache, plan in plans]
    if not any(count for _, count in counted):
        return
    if not sys.stdin.isatty():
        raise UsageError("--all deletes everything; stdin is not a terminal, so pass --yes to confirm")
    for cache, count in counted:
        if count:
            complain(f"{cache.name} in {cache.location().root}: {format_count(count, 'entry', 'entries')}")
    for sentence in _left(plans):
        complain(sentence)
    click.confirm("Remove all of these?", abort=True, err=True)
