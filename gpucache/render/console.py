"""Where text goes: the product to stdout, the talk to stderr.

On a terminal people get rich tables as wide as it is; through a pipe plain text without colour,
wide enough that nothing is cut.
"""

import sys
from collections.abc import Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpucache.units import shown

PIPE_WIDTH = 240


def product() -> Console:
    """The console of stdout."""
    return _console(sys.stdout)


def talk() -> Console:
    """The console of stderr."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    terminal = stream.isatty()
    return Console(file=stream, highlight=False, soft_wrap=False, width=None if terminal else PIPE_WIDTH)


def table(*columns: str, numeric: Sequence[str] = (), short: Sequence[str] = ()) -> Table:
    """A table; ``numeric`` columns are set right, ``short`` ones are never broken over lines."""
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for column in columns:
        grid.add_column(
            column,
            justify="right" if column in numeric else "left",
            no_wrap=column in short or column in numeric,
            overflow="fold",
        )
    return grid


def plain(text: str, style: str = "") -> Text:
    """Text that is read neither as markup nor as a terminal's commands."""
    return Text(shown(text), style=style)
