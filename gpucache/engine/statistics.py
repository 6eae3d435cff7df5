"""Paired ratios with a confidence interval, by the bootstrap. Pure and deterministic.

The interval is the percentile bootstrap of the median ratio of pairs: pairs are drawn with replacement,
2,000 times, by a generator with a fixed seed, so that the same samples give the same interval. Ratios
are compared on a logarithmic scale, on which twice as fast and half as fast are equally far from 1.
"""

import math
import random
from collections.abc import Sequence
from statistics import median

from gpucache.outcomes import Ratio

RESAMPLES = 2000
CONFIDENCE = 0.95
_SEED = 20


def paired_ratio(numerators: Sequence[int], denominators: Sequence[int]) -> Ratio:
    """Median of the ratios of pairs, with the ends of its 95 % interval; needs at least one pair."""
    logs = [
        math.log(max(over, 1) / max(under, 1)) for over, under in zip(numerators, denominators, strict=True)
    ]
    draw = random.Random(_SEED)
    medians = sorted(median(draw.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    tail = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    low, high = medians[tail], medians[-1 - tail]
    return Ratio(math.exp(median(logs)), math.exp(low), math.exp(high))
