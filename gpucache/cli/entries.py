"""Entries of the opened caches: listed, one told whole, one extracted."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.cli.caches import Opened, found_or_unread
from gpucache.cli.globals import given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpucache.caches.interface import Cache
    from gpucache.outcomes import CacheEntry, EntryReport


def show_entries(opened: Opened, what: tuple[str, ...], targets: tuple[str, ...]) -> None:
    """The entries that words and targets name; a single one whole."""
    from gpucache.render import report, tables

    if not what:
        _show_every(opened, targets)
        return
    found = _selected(opened, what, targets)
    entries = [entry for _, entry in found]
    summary = {"entries": len(entries), "size_bytes": sum(entry.size_bytes for entry in entries)}
    if len(found) == 1:
        [(cache, entry)] = found
        one = cache.report(entry)
        given().document("inspect", [one], summary)
        given().show(report.report(one, whole=given().verbose > 0))
        return
    if given().json:
        rows = [_whole(cache, entry) for cache, entry in found]
        given().document("inspect", rows, summary)
        return
    named = [(_name(opened, cache), entry) for cache, entry in found]
    given().show(tables.entries(named, time.time_ns(), whole=given().verbose > 0))


def _show_every(opened: Opened, targets: tuple[str, ...]) -> None:
    """All entries, of which no more is kept than is shown, as there may be 100,000."""
    from gpucache.engine.inspect import every
    from gpucache.render import tables

    summary = {"entries": 0, "size_bytes": 0}

    def rows() -> "Iterator[CacheEntry]":
        for _, entry in every(opened.caches, targets):
            summary["entries"] += 1
            summary["size_bytes"] += entry.size_bytes
            yield entry

    given().document("inspect", rows(), summary)
    if not given().json:
        found = (
            (_name(opened, cache), replace(entry, fields=(), handle=None))
            for cache, entry in every(opened.caches, targets)
        )
        given().show(tables.entries(found, time.time_ns(), whole=given().verbose > 0))


def extract(opened: Opened, what: tuple[str, ...], targets: tuple[str, ...], file: Path) -> None:
    """Write the artifact of one entry to a file; raises UsageError where not one is named."""
    from gpucache.errors import UsageError
    from gpucache.units import format_size

    found = _selected(opened, what, targets) if what else []
    if len(found) != 1:
        keys = ", ".join(entry.key[:12] for _, entry in found[:8])
        raise UsageError(
            f"--extract needs one entry, and {len(found)} are named{f' ({keys})' if keys else ''}; "
            "give the key of one"
        )
    [(cache, entry)] = found
    payload = cache.extract(entry)
    try:
        with file.open("xb") as out:
            out.write(payload)
    except FileExistsError:
        raise UsageError(f"{file} is there already and is not written over; name another file") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written ({error.strerror}); name another file") from None
    summary = {"file": str(file), "size_bytes": len(payload)}
    given().document("inspect", [entry], summary)
    given().say(f"{file}: {entry.artifact_kind}, {format_size(len(payload))}")


def _name(opened: Opened, cache: "Cache") -> str:
    """What tells a cache from the others that are shown beside it; nothing where there are none."""
    if len(opened.caches) == 1:
        return ""
    place = cache.location()
    return f"{cache.name} in {place.root}" if place.role else cache.name


def _selected(
    opened: Opened, what: tuple[str, ...], targets: tuple[str, ...]
) -> "list[tuple[Cache, CacheEntry]]":
    from gpucache.engine.inspect import select_by_cache

    with found_or_unread(opened):
        found = select_by_cache(opened.caches, what, targets)
    return [(cache, entry) for cache, entries in found for entry in entries]


def _whole(cache: "Cache", entry: "CacheEntry") -> "EntryReport | CacheEntry":
    """An entry with its key fields, or what is wrong with it: one damaged entry does not hide the others."""
    from gpucache.errors import FormatError
    from gpucache.outcomes import Problem

    try:
        return cache.report(entry)
    except FormatError as error:
        return replace(entry, damage=Problem(None, str(error)))
