"""Paired ratios with a confidence interval for their median. Pure.

The interval is read from the sorted ratios alone: their k-th lowest and k-th highest enclose the median
with a probability that follows from coin tosses, whatever the noise looks like. Between the two k next to
the wanted confidence it is interpolated as by Hettmansperger and Sheather (1986), which keeps it at what
it claims from six pairs on; five span all of their ratios, at 94 %. A bootstrap of the median claims too
much where pairs are few: of seven, it lies wholly above 1 for 6 % of all noise, and this one for 2.5 %.
Ratios are compared on a logarithmic scale, on which twice and half as fast are equally far from 1.
"""

import math
from collections.abc import Sequence
from statistics import median

from gpucache.outcomes import Ratio

CONFIDENCE = 0.95


def paired_ratio(numerators: Sequence[int], denominators: Sequence[int]) -> Ratio:
    """Median of the ratios of pairs, with the ends of its 95 % interval; needs at least one pair.

    Of fewer than five pairs the ends are the lowest and the highest ratio, which is no such interval.
    """
    logs = sorted(
        math.log(max(over, 1) / max(under, 1)) for over, under in zip(numerators, denominators, strict=True)
    )
    low, high = _low_end(logs), -_low_end([-value for value in reversed(logs)])
    return Ratio(math.exp(median(logs)), math.exp(low), math.exp(high))


def _low_end(ordered: Sequence[float]) -> float:
    """The lower end of the interval, of values in ascending order."""
    count, rank = len(ordered), 1
    # Of the 2**count ways in which tosses fall: those with rank - 1 heads, and those with fewer than rank.
    ways, below = 1, 1
    while True:
        ways = ways * (count - rank + 1) // rank
        wide, narrow = (1 - 2 * part / (1 << count) for part in (below, below + ways))
        if narrow < CONFIDENCE:
            break
        rank, below = rank + 1, below + ways
    if wide <= CONFIDENCE:
        return ordered[0]
    share = (wide - CONFIDENCE) / (wide - narrow)
    inwards = (count - rank) * share / (rank + (count - 2 * rank) * share)
    return (1 - inwards) * ordered[rank - 1] + inwards * ordered[rank]
