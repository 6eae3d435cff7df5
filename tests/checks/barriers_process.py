"""Fails checks of ``sum`` and ``last`` in random groups, segments and work-items; run as a child process.

Its arguments are the prefix of the platform's name, the mode, and the number of trials. Writes a JSON list of
errors: wrong results of groups, or a failure that was not provoked.
"""

import json
import random
import sys

import numpy as np

from gpucache.errors import KernelCheckError
from tests.checks.opencl_process import LOCAL, SIZE, Device


def trial(on: Device, chance: random.Random) -> str:
    """A description of the error; empty if there is none."""
    data = np.ones(SIZE, np.int32)
    failing = chance.sample(range(SIZE // LOCAL), chance.randrange(4))
    for group in failing:
        for _ in range(chance.randrange(1, 5)):
            data[group * LOCAL + chance.randrange(LOCAL)] = -1
    half, item = chance.choice([0, 1, 2, 4, 8, 16, 32]), chance.randrange(LOCAL + 1)
    in_loop = half > 0 and item < LOCAL  # all work-items from this one on
    wanted = [-1 if in_loop or group in failing else LOCAL for group in range(SIZE // LOCAL)]
    on.clear(-1)
    sound, told = not (failing or in_loop), "no failure"
    try:
        on.sum(data, item, half)
        on.checked.synchronise()
    except KernelCheckError as error:
        place, told = error.work_item[0], str(error)
        sound = (error.line == 5 and in_loop and place >= item) or (error.line == 68 and data[place] < 0)
    written = on.values(SIZE // LOCAL)
    return "" if sound and written == wanted else f"{failing}, {item} at {half}: {written}, {told}"


def trial_of_last(on: Device, chance: random.Random) -> str:
    """The same after the last sync point, where work-items diverge until the end."""
    item, other = chance.randrange(-1, LOCAL), chance.randrange(LOCAL)
    wanted = [0 if at == item else 2 if at == other else 1 for at in range(LOCAL)]
    on.clear()
    sound = item < 0
    try:
        on.last(item, other)
        on.checked.synchronise()
    except KernelCheckError as error:
        sound = error.work_item[0] == item
    written = on.values(LOCAL)
    return "" if sound and written == wanted else f"last {item}, {other}: {written}"


def main() -> None:
    platform, mode, count = sys.argv[1:]
    on, chance = Device(platform, mode), random.Random(7)
    answers = [step(on, chance) for _ in range(int(count)) for step in (trial, trial_of_last)]
    sys.stdout.write(json.dumps([answer for answer in answers if answer]))


if __name__ == "__main__":
    main()
