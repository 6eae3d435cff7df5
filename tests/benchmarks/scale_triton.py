"""Inspect and verify of a large cache of Triton's, next to find and reading all of its files."""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.benchmarks.measure import Comparison, Effort, compare, process
from tests.benchmarks.scale import HASH
from tests.caches.triton.build import put

_ENTRIES = 5_000


def run(effort: Effort) -> Iterator[Comparison]:
    entries = 50 if effort.small else _ENTRIES
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "triton")
        for number in range(entries):
            put(root, number)
        every: Sequence[str | Path] = ["find", root, "-type", "f"]
        peers: Mapping[str, Mapping[str, Sequence[str | Path]]] = {
            "inspect": {"find, with stat": [*every, "-printf", "%s %T@ %p\\n"]},
            "verify": {
                "find -exec cat": [*every, "-exec", "cat", "{}", "+"],
                "reading and XXH3 of all": [sys.executable, "-c", HASH, root],
            },
        }
        for verb, commands in peers.items():
            ours = [sys.executable, "-m", "gpucache", verb, "--cache", f"triton:{root}"]
            sides = {f"gpucache {verb}": process(ours, HOME=place)}
            sides |= {name: process(command) for name, command in commands.items()}
            yield compare(f"{verb} of {entries} entries of Triton's", sides, effort.rounds)
