"""``gpucache evict``: bound the cache."""

import sys
import time
from typing import TYPE_CHECKING

import click

from gpucache.cli.caches import cache_option, finish, open_named, require_named, stores_apart, timeout_option
from gpucache.cli.globals import given, global_options
from gpucache.cli.parameters import AGE, SIZE, Count, EntryName, StoreName, TargetName, field, flag, valued
from gpucache.cli.streams import complain
from gpucache.cli.usage import VerbCommand
from gpucache.engine.selection import no_store
from gpucache.errors import CacheUnusableError, ExitCode, UsageError
from gpucache.units import format_count

if TYPE_CHECKING:
    from gpucache.engine.evict import Eviction


@click.command(cls=VerbCommand)
@click.argument("url", metavar="[URL]", required=False, type=StoreName())
@cache_option
@timeout_option
@valued(
    "--max-size",
    "S",
    SIZE,
    "Above this size, such as 2GiB, down to 80 % of it.\f"
    "Above this size, such as 2GiB, evict down to 80 % of it, so that the next entry evicts nothing.",
)
@valued("--max-files", "N", Count(1), "Above N files, evict down to 80 % of that.")
@valued(
    "--older-than",
    "A",
    AGE,
    "Entries unused for this long, such as 30d.\f"
    "Entries unused for this long, such as 30d; our own record a use at most once a minute.",
)
@flag(
    "--superseded",
    "Entries with a newer one of their program.\f"
    "Entries with a newer one for the same program, target and options, unused since.",
)
@flag(
    "--stale",
    "Entries whose compiler is gone, unused for 30 days.\f"
    "Entries of a compiler, driver or interpreter that is not here, unused for 30 days.",
)
@click.option(
    "--unlike",
    metavar="FIELD=VALUE",
    multiple=True,
    help="Entries with another value in a key field.\f"
    "Entries whose key field has another value, such as hip_version=6.2.41133; repeatable.",
)
@valued("--program", "P", EntryName(), "Entries of this program.")
@valued("--target", "T", TargetName(), "Entries for this target.")
@flag(
    "--all everything",
    "Every entry; asks on a terminal.\fEvery entry, and the records of our own cache; asks on a terminal.",
)
@flag(
    "--keep-binaries",
    "Of entries with all stages, all but the binary.\f"
    "Of entries with each stage of a compilation, remove all but the binary and its loader's files.",
)
@flag("--dry-run", "Show the entries that would be removed, and stop.")
@flag("--yes -y", "Do not ask (--all, entries of other systems).")
@global_options
def evict(
    url: str | None,
    cache: tuple[str, ...],
    max_size: int | None,
    max_files: int | None,
    older_than: int | None,
    superseded: bool,
    stale: bool,
    unlike: tuple[str, ...],
    program: str | None,
    target: str | None,
    everything: bool,
    keep_binaries: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove entries that match all given filters, least recently used first.

    With URL, entries of that store are removed, and their last use is the last pull by any machine; pinned
    ones stay.

    Without a filter the limit of GPUCACHE_MAX_SIZE applies, or another cache's own limit. --dry-run shows
    what would be removed.

    \f
    --stale judges by the compilers, drivers and interpreters of this environment; entries of one that any
    environment used within 30 days stay. --superseded keeps entries that were used since the newer one was
    made, or within an hour before; if another compiler or driver made the newer one, or if its source is no
    file, 30 days must have passed as well. Neither selects anything where uses are not recorded: in a root
    that other users read, on file systems without access times, or in a cache without a single use. Entries
    of a compiler without a recorded use are not compared with those of other compilers. Programs with
    GPUCACHE_READ_ONLY or GPUCACHE_SYSTEM_DIRS, or with a read-only mount of the cache, record no uses: give
    them a root made by warm --shared.

    Exit 2 also means that a named cache or entry, or the directory of --root or GPUCACHE_DIR, does not exist,
    so that a timer with a typo fails.

    With several caches, --max-size and --max-files limit their total. Least recently used, large and
    cheap-to-rebuild entries go first. Entries that gpucache will not remove still count. In other caches
    removals follow their owner's rules and locks; files whose names are not the owner's are left alone.
    """
    from gpucache.answers import evict as text
    from gpucache.answers.evict import EvictSummary, Foreseen
    from gpucache.engine.evict import Limits, plan_eviction
    from gpucache.engine.machine import toolchains_for

    if url is not None:
        left, cache = stores_apart((url,), cache)
        if left:
            raise UsageError(f"{no_store(url)}; name a cache by --cache, and a program by --program")
    opened = open_named(cache, systems=False)
    require_named(opened, cache)
    fields = tuple(field("--unlike", text, "; write it as hip_version=6.2.41133") for text in unlike)
    asked = Limits(
        max_size, max_files, older_than, superseded, stale, fields, program, target, everything, keep_binaries
    )
    heads = dry_run or given().json or given().whole or not everything
    eviction = plan_eviction(opened, asked, toolchains_for, time.time_ns(), heads=heads)
    if not dry_run and opened.settings.read_only:
        raise CacheUnusableError("GPUCACHE_READ_ONLY is set, so nothing is removed; unset it")
    foreign = [cache for cache in opened.caches if cache not in opened.roots and url is None]
    if everything and not (dry_run or yes):
        _ask(eviction, is_store=url is not None)
    elif foreign and sys.stdin.isatty() and not (dry_run or yes):
        _ask(eviction)
    said, owns = list[str](), [Foreseen() for _ in eviction.plans]
    summary = Foreseen() if dry_run else EvictSummary()
    if isinstance(summary, Foreseen):
        outcomes = eviction.foreseen(summary, owns)
    else:
        outcomes = eviction.run(summary, said)
    told = text.Evictions(whole=given().whole)
    try:
        given().document("evict", outcomes, summary)
        for outcome in outcomes:
            told.add(outcome)
    except KeyboardInterrupt:
        so_far = "" if dry_run else f"{summary.removed} were removed, and the rest stays"
        raise KeyboardInterrupt(so_far) from None
    if isinstance(summary, Foreseen):
        places = [one.location() for one, _ in eviction.plans]
        given().show(told.plan(summary))
        given().show(text.evict_caches(list(zip(places, owns, strict=True))))
    else:
        given().show(told.done(summary))
    given().say(*said, *summary.left, *filter(None, [eviction.unseen]))
    finish(opened, ExitCode.FINDINGS if summary.stay else ExitCode.DONE)


def _ask(eviction: "Eviction", *, is_store: bool = False) -> None:
    """Ask before removing everything, or much of others, naming every place.

    Raises UsageError if everything goes and stdin cannot be asked.
    """
    everything = eviction.asked.everything
    counted = [(cache, sum(one.refused is None for one in plan.removals())) for cache, plan in eviction.plans]
    if not any(count for _, count in counted):
        return
    if not sys.stdin.isatty():
        raise UsageError("--all deletes everything; stdin is not a terminal, so pass --yes to confirm")
    for cache, count in counted:
        if count:
            complain(f"{cache.name} in {cache.location().root}: {format_count(count, 'entry', 'entries')}")
    for sentence in eviction.left():
        complain(sentence)
    what = f"all entries of {counted[0][0].location().root}" if is_store else "all of these"
    click.confirm(f"Remove {what if everything else 'these'}?", abort=True, err=True)
