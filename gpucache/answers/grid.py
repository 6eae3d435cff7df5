"""One description of a table, drawn for a terminal of any width and for a pipe; lines and pairs likewise.

On a terminal what all rows share is said once above them, rows are grouped by what is too wide for a
column, and columns go, the least important first, before anything is broken over lines. A pipe gets
every column in every row, so that a line can be searched for by itself. Each kind gives its ``lines`` for a
pipe without rich, which takes longer to import than a small cache to read. Must not know what is in it.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from gpucache.units import format_count, printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 10_000
"""The width of a pipe: so many columns that nothing is ever broken over lines or left out."""
PROSE_WIDTH = 32
"""The width that a sentence should have at least; narrower ones are hard to read."""
PLACE_WIDTH = 20
"""The width that a path should have at least, so that its beginning and its end can be told."""
GAP = 2
SIZE = "on disk"
"""The size of an entry that is shown everywhere: the blocks its file takes, which eviction counts."""
NAMED = 3
"""How many items that share a reason are named."""
ROWS_SHOWN = 200
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Line(NamedTuple):
    """Text, which may have several lines, in one style; what ``plain`` makes."""

    text: str
    style: str = ""

    def lines(self, _: int) -> Iterator[str]:
        """The text as it is, whatever the width."""
        yield from self.text.split("\n")

    def __rich__(self) -> "Text":
        """The same in its style."""
        from rich.text import Text

        return Text(self.text, style=self.style)


class Pairs(NamedTuple):
    """What is said of one thing, a label and a text in each row."""

    rows: Sequence[tuple[str, str]]

    def lines(self, _: int) -> Iterator[str]:
        """The texts below each other, unbroken, whatever the width."""
        labels = max((_cells(label) for label, _text in self.rows), default=0)
        for label, text in self.rows:
            first, *more = printable_lines(text).split("\n")
            yield f"{label}{' ' * (labels + GAP - _cells(label))}{first}"
            yield from (f"{' ' * (labels + GAP)}{line}" for line in more)

    def __rich__(self) -> "Table":
        """The same, in which long texts are broken."""
        from rich.table import Table

        grid = Table.grid(padding=(0, GAP, 0, 0))
        for label, text in self.rows:
            grid.add_row(label, plain(text))
        return grid


Cell = str | Line
"""Text without a style is kept as it is, as there may be a hundred thousand rows of it."""


class Column(NamedTuple):
    """A column, what of a row stands in it, and what may be done to it where there is little room."""

    heading: str
    of: Callable[[Any], Cell] = str
    """The cell of a row."""
    numeric: bool = False
    """Whether it is aligned on the right and never broken over lines."""
    whole: bool = False
    """Whether it is never broken over lines."""
    shared: bool = False
    """Whether a value is written once above all the rows, or above each group of rows, that share it."""
    prose: bool = False
    """Whether it holds sentences, which are broken over lines before any column is left out."""
    place: bool = False
    """Whether it holds paths, which are shortened in their middle where there is little room."""
    spare: int = 0
    """Its turn to be left out where there is too little room, the highest number first; 0 always stays."""


class Grid:
    """Rows below columns. With ``every`` no column is left out, however narrow the terminal is."""

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Iterable[Any] = (),
        *,
        every: bool = False,
        as_lines: bool = False,
    ) -> None:
        self.columns = columns
        self.rows: list[tuple[Cell, ...]] = []
        self.as_lines = as_lines  # whether it is drawn as ``lines``, as it is one of many
        self._every = every
        self._known: dict[int, int] = {}  # the width of the widest cell by column, until a row is added
        for row in rows:
            self.add(*[column.of(row) for column in columns])

    def add(self, *cells: Cell) -> None:
        """Add a row with a cell for each column; text is shown on one line and never read as markup.

        A line break in a name or an option must not look like a row; what has several lines is a ``Line``.
        """
        self.rows.append(tuple([cell if isinstance(cell, Line) else one_line(cell).text for cell in cells]))
        self._known.clear()

    def __rich_console__(self, _: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        """The table, drawn to the width that there is."""
        said, groups, used, widths = self._layout(options.max_width)
        yield from said
        yield from self._grouped(groups, used, widths)

    def lines(self, width: int) -> Iterator[str]:
        """The same as unbroken lines of text, which is a thousand times as fast for many rows."""
        said, groups, used, _ = self._layout(width)
        yield from (one.text for one in said)
        if not used:
            yield ""
            return
        widths = {index: self._widest(index) for index in used}
        yield self._line([self.columns[index].heading for index in used], used, widths)
        yield "─" * (sum(widths.values()) + GAP * (len(used) - 1))
        for names, rows in self._parts(groups).items():
            if names:
                yield ", ".join(name or "-" for name in names)
            for row in rows:
                cells = [_said(row[index]) for index in used]
                if any("\n" in cell for cell in cells):
                    broken = zip_longest(*(cell.split("\n") for cell in cells), fillvalue="")
                    yield from (self._line(parts, used, widths) for parts in broken)
                else:
                    yield self._line(cells, used, widths)

    def _line(self, cells: Sequence[str], used: Sequence[int], widths: Mapping[int, int]) -> str:
        parts = []
        for index, cell in zip(used, cells, strict=True):
            blanks = " " * (widths[index] - _cells(cell))
            parts.append(blanks + cell if self.columns[index].numeric else cell + blanks)
        return (" " * GAP).join(parts).rstrip()

    def _layout(self, width: int) -> tuple[list[Line], list[int], list[int], dict[int, int]]:
        """The lines above the rows, the columns that group them, the other columns, and their widths."""
        used = [index for index in range(len(self.columns)) if any(_said(row[index]) for row in self.rows)]
        if width >= PIPE_WIDTH:
            return [], [], used, self._widths(used, width)

        def fits() -> bool:
            return self._taken(used) <= width

        said: list[Line] = []
        if len(self.rows) > 1 or not fits():
            for index in [one for one in used if self.columns[one].shared and self._is_same(one)]:
                used.remove(index)
                said.append(plain(f"{self.columns[index].heading}: {_said(self.rows[0][index])}"))
        groups = [] if fits() else [index for index in used if self.columns[index].shared]
        used = [index for index in used if index not in groups]
        for index in sorted(used, key=lambda one: -self.columns[one].spare):
            if self.columns[index].spare and not self._every and not fits():
                used.remove(index)
        return said, groups, used, self._widths(used, width)

    def _parts(self, groups: Sequence[int]) -> dict[tuple[str, ...], list[tuple[Cell, ...]]]:
        """The rows by what they are grouped by."""
        parts: dict[tuple[str, ...], list[tuple[Cell, ...]]] = {}
        for row in self.rows:
            parts.setdefault(tuple(_said(row[index]) for index in groups), []).append(row)
        return parts

    def _grouped(
        self, groups: Sequence[int], used: Sequence[int], widths: dict[int, int]
    ) -> "Iterator[RenderableType]":
        """One table, or the head of the table and then each group of rows below what they share."""
        if not groups:
            yield self._table(used, self.rows, widths)
            return
        yield self._table(used, [], widths)
        for names, rows in self._parts(groups).items():
            yield plain(", ".join(name or "-" for name in names), "bold")
            yield self._table(used, rows, widths, headed=False)

    def _is_same(self, index: int) -> bool:
        return len({_said(row[index]) for row in self.rows}) == 1

    def _widths(self, used: Sequence[int], width: int) -> dict[int, int]:
        """The widths of columns, the same in every group; empty where there is too little room."""
        left = width - self._taken(used)
        if left < 0:
            return {}
        widths = {index: self._room(index) for index in used}
        for index in used:
            more = min(left, self._widest(index) - widths[index])
            widths[index], left = widths[index] + more, left - more
        return widths

    def _taken(self, used: Sequence[int]) -> int:
        return sum(map(self._room, used)) + GAP * (len(used) - 1)

    def _room(self, index: int) -> int:
        """How many characters a column takes, or for sentences how many it should have at least."""
        widest = self._widest(index)
        column = self.columns[index]
        return min(widest, PROSE_WIDTH if column.prose else PLACE_WIDTH if column.place else widest)

    def _widest(self, index: int) -> int:
        if index not in self._known:
            cells = (_cells(line) for row in self.rows for line in _said(row[index]).split("\n"))
            self._known[index] = max(len(self.columns[index].heading), *cells)
        return self._known[index]

    def _table(
        self,
        used: Sequence[int],
        rows: Sequence[tuple[Cell, ...]],
        widths: dict[int, int],
        *,
        headed: bool = True,
    ) -> "Table":
        """Some of the columns over some of the rows."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=headed, header_style="bold",
            padding=(0, 1, 0, 0),
        )  # fmt: skip
        for index in used:
            column = self.columns[index]
            whole = column.numeric or column.whole
            table.add_column(
                column.heading,
                justify="right" if column.numeric else "left",
                no_wrap=whole,
                overflow="fold",
                width=widths.get(index),
                min_width=self._room(index) if whole else None,
            )
        for row in rows:
            cells = [
                shortened(_said(row[index]), widths.get(index, self._room(index)))
                if self.columns[index].place
                else row[index]
                for index in used
            ]
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
        return table


Block = str | Line | Pairs | Grid
"""What is written for people, on lines of its own."""


def _said(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def _cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shortened(path: str, width: int) -> str:
    """A path in so many characters: the home folder as ~, an ellipsis in the middle where it is too long."""
    home = os.path.expanduser("~")  # noqa: PTH111 - raises nothing without a home
    if len(home) > 1 and path.startswith(home + os.sep):
        path = "~" + path[len(home) :]
    if len(path) <= width:
        return path
    end = (width - 1) * 2 // 3
    return f"{path[: width - 1 - end]}\N{HORIZONTAL ELLIPSIS}{path[-end:]}"


def _unindented(text: str) -> str:
    """Text for a cell, which no terminal would move on to its own stops."""
    return printable_lines(text).expandtabs()


def plain(text: str, style: str = "") -> Line:
    """Text for a terminal that holds no markup and no control characters."""
    return Line(_unindented(text), style)


def one_line(text: str, style: str = "") -> Line:
    """Text on one line: a line break in a name must not look like the end of what is said."""
    return Line(printable(text.expandtabs(), None), style)


def digest(value: str) -> str:
    """A value as people see it: of a SHA-256 digest only its beginning."""
    return f"SHA-256 {value[:12]}" if _DIGEST.fullmatch(value) else value


def named(program: str, target: str = "", variant: str = "") -> str:
    """A build as people know it: its program, what tells it from others of that, and its target."""
    return f"{program}{f' [{variant}]' if variant else ''}{f' for {target}' if target else ''}"


def more_rows(number: int, one: str, many: str | None = None) -> Iterator[Block]:
    """A sentence about the rows that were left out of a table, as nobody reads one to its end."""
    if number > ROWS_SHOWN:
        left_out = format_count(number - ROWS_SHOWN, f"more {one}", f"more {many or one + 's'}")
        yield plain(f"and {left_out}; --json has all")


def few(reasons: Sequence[str], *, whole: bool) -> Iterator[str]:
    """The first reasons and how many more there are; all of them if ``whole``."""
    yield from reasons if whole else reasons[:NAMED]
    if not whole and len(reasons) > NAMED:
        yield f"{format_count(len(reasons) - NAMED, 'more reason')}; -v shows them"
