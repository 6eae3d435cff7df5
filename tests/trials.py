"""How often a promise is attacked: a short form that always runs, and a long one by ``TRIALS=FILE``.

    TRIALS=trials.txt pytest -m stress tests/faults

The long form appends a line for each attack to the file: its kind, how often it was made, and how often it
succeeded.
"""

import os
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_FILE = os.environ.get("TRIALS", "")


def trials(short: T, long: T) -> T:
    return long if _FILE else short


def tell(attack: str, count: int, failures: int) -> None:
    if _FILE:
        with Path(_FILE).open("a", encoding="utf-8") as file:
            file.write(f"{attack} | {count:,} | {failures:,}\n")
