"""``gpucache inspect``: what is cached, and why something missed."""

import time
from pathlib import Path

import click

from gpucache.cli.caches import Opened, open_named
from gpucache.cli.globals import given, global_options
from gpucache.cli.parameters import EntryName, TargetName

MISSES_SHOWN = 10


@click.command(short_help="Show what is cached, one entry whole, or the last misses.")
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=EntryName())
@click.option("--cache", metavar="NAME|DIR", help="Which cache, by name or root; default our own.")
@click.option("--target", metavar="T", type=TargetName(), help="Only entries for this target.")
@click.option("--list", "list_all", is_flag=True, help="Show every entry.")
@click.option("--misses", is_flag=True, help="Show the last misses with their verdicts.")
@click.option(
    "--extract", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Write the artifact of the one entry that WHAT names, as the compiler returned it.",
)  # fmt: skip
@global_options
def inspect(
    what: tuple[str, ...],
    cache: str | None,
    target: str | None,
    list_all: bool,
    misses: bool,
    extract: Path | None,
) -> None:
    """Show the state of the cache and the last misses.

    With WHAT (a program, a target, or the first digits of a key) its entries; one entry is shown
    whole, with all its key fields.
    """
    opened = open_named(cache)
    if extract is not None:
        _extract(opened, what, target, extract)
    elif misses:
        _misses(opened)
    elif what or target or list_all:
        _entries(opened, what, target)
    else:
        _state(opened)


def _state(opened: Opened) -> None:
    from gpucache.engine.inspect import state
    from gpucache.render import document, report, tables

    found = state(opened.cache)
    records = opened.store.journal_tail(MISSES_SHOWN)
    summary = {**document.state(found), "misses": records}
    given().document(lambda: document.document("inspect", (), summary))
    given().show(tables.state(found))
    given().show(["", *report.misses(records, time.time_ns())])


def _misses(opened: Opened) -> None:
    from gpucache.render import document, report

    records = opened.store.journal_tail(MISSES_SHOWN if not given().verbose else 1000)
    given().document(lambda: document.document("inspect", records, {"misses": len(records)}))
    given().show(report.misses(records, time.time_ns()))


def _entries(opened: Opened, what: tuple[str, ...], target: str | None) -> None:
    from gpucache.engine.inspect import select
    from gpucache.render import document, report, tables

    found = list(select(opened.cache, what, target))
    summary = {"entries": len(found), "size_bytes": sum(entry.size_bytes for entry in found)}
    if what and (len(found) == 1 or given().json):
        reports = [opened.cache.report(entry) for entry in found]
        given().document(lambda: document.document("inspect", map(document.report, reports), summary))
        for one in reports:
            given().show(report.report(one, whole=given().verbose > 0))
        return
    given().document(lambda: document.document("inspect", map(document.entry, found), summary))
    given().show([tables.entries(found, time.time_ns())])


def _extract(opened: Opened, what: tuple[str, ...], target: str | None, file: Path) -> None:
    from gpucache.engine.inspect import select
    from gpucache.errors import UsageError
    from gpucache.render import document
    from gpucache.units import format_size

    found = list(select(opened.cache, what, target)) if what else []
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
