"""Live progress on stderr, when that is a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpucache.units import printable_lines

if TYPE_CHECKING:
    from rich.progress import Progress


class Display:
    """A bar that names what is being worked on; it is silent where nobody looks."""

    def __init__(self, bar: "Progress | None") -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=None)

    def show(self, done: int, total: int | None, running: str) -> None:
        """Show how far a run is."""
        if self._bar is not None and self._task is not None:
            self._bar.start()  # a thread, which is not there before: a process with threads has no copies
            self._bar.update(
                self._task, completed=done, total=total, description=printable_lines(running[:60])
            )


@contextmanager
def display(*, quiet: bool) -> Iterator[Display]:
    """A display for the time of a run."""
    if quiet or not sys.stderr.isatty():  # FORCE_COLOR asks for colours in a pipe, not for a moving cursor
        yield Display(None)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    from gpucache.render.console import console_of

    columns = (
        SpinnerColumn(),
        MofNCompleteColumn(),
        BarColumn(20),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    bar = Progress(*columns, console=console_of(sys.stderr), transient=True)
    try:
        yield Display(bar)
    finally:
        bar.stop()
