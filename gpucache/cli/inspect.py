"""``gpucache inspect``: what is cached, and why something missed."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpucache.cli.caches import Opened, open_named
from gpucache.cli.globals import given, global_options
from gpucache.cli.parameters import Age, EntryName, build_options, profile_option
from gpucache.cli.why import Asked, explain

if TYPE_CHECKING:
    from gpucache.outcomes import CacheEntry

MISSES_SHOWN = 10
MISSES_KEPT = 4096


@click.command(short_help="Show what is cached, and why something missed.")
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=EntryName())
@click.option("--cache", metavar="NAME|DIR", help="Which cache, by name or root; default our own.")
@click.option("--list", "list_all", is_flag=True, help="Show every entry.")
@click.option("--misses", is_flag=True, help="Show the last misses with their verdicts.")
@click.option("--since", metavar="A", type=Age(), help="With --misses: only those of this long, such as 1h.")
@click.option(
    "--why",
    is_flag=True,
    help="Say whether WHAT (sources, or programs) would hit now, and if not why; compare two keys.",
)
@click.option(
    "--extract", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Write the artifact of the one entry that WHAT names, as the compiler returned it.",
)  # fmt: skip
@build_options
@profile_option
@global_options
def inspect(
    what: tuple[str, ...],
    cache: str | None,
    list_all: bool,
    misses: bool,
    since: int | None,
    why: bool,
    extract: Path | None,
    targets: tuple[str, ...],
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    options: tuple[str, ...],
    local_sizes: tuple[tuple[int, ...], ...],
    profile: Path | None,
) -> None:
    """Show the state of the cache, the last misses, and what its keys suffer from.

    With WHAT (a program, a target, or the first digits of a key) its entries; one entry is shown
    whole, with all its key fields. With --why, give -I, -D, --option, --local-size and --target as
    you would to warm: nothing is compiled, and exit 3 says that something would miss.
    """
    asked = Asked(what, targets, include_dirs, defines, options, local_sizes, profile)
    _check(asked, why=why, misses=misses, since=since)
    opened = open_named(cache)
    if why:
        explain(opened, asked)
    elif extract is not None:
        _extract(opened, what, targets, extract)
    elif misses:
        _misses(opened, since)
    elif what or targets or list_all:
        _entries(opened, what, targets)
    else:
        _state(opened)


def _check(asked: Asked, *, why: bool, misses: bool, since: int | None) -> None:
    from gpucache.errors import UsageError

    if (asked.builds or asked.profile) and not why:
        raise UsageError("-I, -D, --option, --local-size and --device-profile say how to ask; add --why")
    if since is not None and not misses:
        raise UsageError("--since bounds the misses that are shown; add --misses")


def _state(opened: Opened) -> None:
    from gpucache.engine.hygiene import Traces, advise_on
    from gpucache.engine.inspect import key_fields_of, processes, recent_misses, state
    from gpucache.render import document, report, tables

    traces = Traces()
    found = state(opened.cache, traces.of(opened.cache.scan()))
    advice = list(advise_on(traces, key_fields_of(opened.cache)))
    records = opened.store.journal_tail(MISSES_KEPT)
    misses, runs = recent_misses(records)[:MISSES_SHOWN], processes(records)[:MISSES_SHOWN]
    summary = {
        **document.state(found),
        "advice": [document.advice(one) for one in advice],
        "misses": misses,
        "processes": runs,
    }
    given().document(lambda: document.document("inspect", (), summary))
    given().show(tables.state(found))
    given().show(tables.advice(advice))
    given().show(["", *report.misses(misses, time.time_ns()), *report.processes(runs, time.time_ns())])


def _misses(opened: Opened, since: int | None) -> None:
    from gpucache.engine.inspect import recent_misses
    from gpucache.render import document, report

    oldest = 0 if since is None else time.time_ns() - since
    found = recent_misses(opened.store.journal_tail(MISSES_KEPT), oldest)
    records = found if given().verbose or since is not None or given().json else found[:MISSES_SHOWN]
    given().document(lambda: document.document("inspect", records, {"count": len(records)}))
    given().show(report.misses(records, time.time_ns()))


def _entries(opened: Opened, what: tuple[str, ...], targets: tuple[str, ...]) -> None:
    from gpucache.engine.inspect import select_for
    from gpucache.render import document, report, tables

    found = select_for(opened.cache, what, targets)
    summary = {"entries": len(found), "size_bytes": sum(entry.size_bytes for entry in found)}
    if what and (len(found) == 1 or given().json):
        if len(found) == 1:
            one = opened.cache.report(found[0])
            given().document(lambda: document.document("inspect", [document.report(one)], summary))
            given().show(report.report(one, whole=given().verbose > 0))
            return
        rows = [_whole(opened, entry) for entry in found]
        given().document(lambda: document.document("inspect", rows, summary))
        return
    given().document(lambda: document.document("inspect", map(document.entry, found), summary))
    given().show([tables.entries(found, time.time_ns())])


def _whole(opened: Opened, entry: "CacheEntry") -> "dict[str, Any]":
    """An entry with its key fields, or what is wrong with it: one damaged entry does not hide the others."""
    from gpucache.errors import FormatError
    from gpucache.render import document

    try:
        return document.report(opened.cache.report(entry))
    except FormatError as error:
        return document.entry(entry) | {"damage": str(error)}


def _extract(opened: Opened, what: tuple[str, ...], targets: tuple[str, ...], file: Path) -> None:
    from gpucache.engine.inspect import select_for
    from gpucache.errors import UsageError
    from gpucache.render import document
    from gpucache.units import format_size

    found = select_for(opened.cache, what, targets) if what else []
    if len(found) != 1:
        keys = ", ".join(entry.key[:12] for entry in found[:8])
        raise UsageError(
            f"--extract needs one entry, and {len(found)} are named{f' ({keys})' if keys else ''}; "
            "give the key of one"
        )
    artifact = opened.cache.artifact(found[0])
    try:
        file.write_bytes(artifact.payload)
    except OSError as error:
        raise UsageError(f"{file} cannot be written ({error.strerror}); name another file") from None
    summary = {"file": str(file), "size_bytes": len(artifact.payload)}
    given().document(lambda: document.document("inspect", [document.entry(found[0])], summary))
    given().say(f"{file}: {artifact.kind.value}, {format_size(len(artifact.payload))}")
