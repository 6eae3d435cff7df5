"""Entries of the opened caches: listed, one told whole, one extracted."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.cli.caches import Opened
from gpucache.cli.files import writing
from gpucache.cli.globals import given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpucache.caches.interface import Cache
    from gpucache.outcomes import CacheEntry, EntryReport


def show_entries(opened: Opened, what: tuple[str, ...], targets: tuple[str, ...]) -> None:
    """The entries that words and targets name; a single one whole."""
    from gpucache.render import inspect

    if not what:
        _show_every(opened, targets)
        return
    found = _found(opened, what, targets)
    sizes = [entry.size_bytes for _, entry in found]
    summary = {"entries": len(sizes), "size_bytes": sum(sizes)}
    if len(found) == 1:
        [(cache, entry)] = found
        one = cache.report(entry)
        given().document("inspect", [one], summary)
        given().show(inspect.report(one, whole=given().whole))
        return
    given().document("inspect", (_whole(cache, entry) for cache, entry in found), summary)
    named = [(_name(opened, cache), entry) for cache, entry in found]
    given().show(inspect.entries(named, time.time_ns(), whole=given().whole))


def _show_every(opened: Opened, targets: tuple[str, ...]) -> None:
    """All entries, of which no more is kept than is shown, as there may be 100,000."""
    from gpucache.render import inspect

    every = ((cache, entry) for cache, entries in opened.select((), targets) for entry in entries)
    summary = {"entries": 0, "size_bytes": 0}

    def counted() -> "Iterator[CacheEntry]":
        for _, entry in every:
            summary["entries"] += 1
            summary["size_bytes"] += entry.size_bytes
            yield entry

    given().document("inspect", counted(), summary)
    slim = ((_name(opened, cache), replace(entry, fields=(), handle=None)) for cache, entry in every)
    given().show(inspect.entries(slim, time.time_ns(), whole=given().whole))


def extract(opened: Opened, what: tuple[str, ...], targets: tuple[str, ...], file: Path) -> None:
    """Write the artifact of one entry to a file; raises UsageError where not one is named."""
    from gpucache.errors import UsageError
    from gpucache.units import format_size

    found = _found(opened, what, targets) if what else []
    if len(found) != 1:
        keys = ", ".join(entry.key[:12] for _, entry in found[:8])
        raise UsageError(
            f"--extract needs one entry, and {len(found)} are named{f' ({keys})' if keys else ''}; "
            "give the key of one"
        )
    [(cache, entry)] = found
    payload = cache.extract(entry)
    with writing(file):
        try:
            with file.open("xb") as out:
                out.write(payload)
        except FileExistsError:
            raise UsageError(f"{file} is there already and is not written over; name another file") from None
    summary = {"file": str(file), "size_bytes": len(payload)}
    given().document("inspect", [entry], summary)
    given().say(f"{file}: {entry.artifact_kind}, {format_size(len(payload))}")


def _name(opened: Opened, cache: "Cache") -> str:
    """What tells a cache from the others that are shown beside it; nothing where there are none."""
    if len(opened.caches) == 1:
        return ""
    place = cache.location()
    return f"{cache.name} in {place.root}" if place.role else cache.name


def _found(
    opened: Opened, what: tuple[str, ...], targets: tuple[str, ...]
) -> "list[tuple[Cache, CacheEntry]]":
    return [(cache, entry) for cache, entries in opened.select(what, targets) for entry in entries]


def _whole(cache: "Cache", entry: "CacheEntry") -> "EntryReport | CacheEntry":
    """An entry with its key fields, or what is wrong with it: one damaged entry does not hide the others."""
    from gpucache.errors import FormatError
    from gpucache.outcomes import Problem

    try:
        return cache.report(entry)
    except FormatError as error:
        return replace(entry, damage=Problem(None, str(error)))
