"""``gpucache inspect --watch``: a line for every entry that a program writes, as it is written."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpucache.cli import streams
from gpucache.cli.caches import open_everywhere, open_named
from gpucache.cli.globals import given
from gpucache.units import format_count

if TYPE_CHECKING:
    from gpucache.caches.interface import Cache


def show_written(names: Sequence[str]) -> None:
    """Tell of what is written to the caches that are named, or to all, until an interrupt or unread."""
    from gpucache.answers import inspect as text
    from gpucache.engine.watch import watch

    told: set[tuple[str, str, str]] = set()  # entries, each of which may have several lines

    def find() -> "Sequence[Cache]":
        return open_named(names).caches if names else open_everywhere()

    def started(caches: int) -> None:
        given().say(f"watching {format_count(caches, 'cache')}; press Ctrl-C to stop")

    try:
        for one in watch(find, started, streams.unread):
            told.add((one.entry.cache, one.root, one.entry.key))
            if given().json:
                from gpucache.answers.document import line_of

                click.echo(line_of(one))
            given().show([text.written(one)])
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{format_count(len(told), 'entry was', 'entries were')} written") from None
