"""What people are told when a layer has been exported."""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpucache.answers.layer import Layered, LayerResult, LayerSummary
from gpucache.render.run import unseen
from gpucache.units import format_count, format_size, printable

_REASONS = 3
"""The most reasons that are told unless everything is."""


def layer_line(summary: LayerSummary) -> str:
    """What was exported, in one line, and how it is used."""
    if not summary.exported:
        why = unseen(summary.ended)
        if summary.left:
            why = f"{format_count(summary.left, 'build was', 'builds were')} left to the command's compilers"
        return f"nothing was exported{'' if summary.answers else ', and no layer is made'}: {why}"
    left = f"; {summary.left} left to their compilers" if summary.left else ""
    return (
        f"exported {format_count(summary.exported, 'build')} to {summary.layer}, which answers "
        f"{summary.answers} in {format_size(summary.size_bytes)}{left}; {summary.layer}/gpucache.env has the "
        "variables"
    )


def left(rows: Sequence[Layered], *, whole: bool) -> Iterator[str]:
    """Why builds were left, each reason once with how many; with ``whole`` every one by its name."""
    found = [row for row in rows if row.result is LayerResult.LEFT]
    if whole:
        yield from (
            printable(f"left: {row.program or 'a build'} for {row.target or 'nobody'}: {row.reason}", None)
            for row in found
        )
        return
    reasons = Counter(row.reason for row in found).most_common()
    for reason, number in reasons[:_REASONS]:
        yield f"left ({number}): {reason}"
    if len(reasons) > _REASONS:
        yield f"{format_count(len(reasons) - _REASONS, 'more reason')}; -v tells them"
