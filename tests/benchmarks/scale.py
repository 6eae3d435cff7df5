"""The verbs over a large cache, next to tools that do no more than they must: find, hashing, and ccache."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpucache.store import layout
from tests.benchmarks.large_cache import make_cache
from tests.benchmarks.measure import Comparison, Effort, Side, compare, process

ENTRIES_EACH = 5
HASH = """
import os, sys, xxhash
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            xxhash.xxh3_128_digest(file.read())
"""


def run(effort: Effort) -> Iterator[Comparison]:
    """For each number of entries a comparison for each verb."""
    for entries in effort.entries:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            make_cache(place / "root", -(-entries // ENTRIES_EACH), min(entries, ENTRIES_EACH))
            yield from _Scale(place, entries).compared(effort.rounds)


def _copied(source: str, target: str) -> None:
    if source.endswith(layout.ENTRY_SUFFIX):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


class _Scale:
    """A large cache with a directory for other files, and its peers."""

    def __init__(self, place: Path, entries: int) -> None:
        self._place, self._root, self._copy = place, place / "root", place / "copy"
        self._entries = entries
        (place / "home").mkdir()

    def compared(self, rounds: int) -> Iterator[Comparison]:
        has_ccache = self._make_ccache()
        absent = {} if has_ccache else {"ccache": "it is not installed"}
        files = process(["find", self._root, "-type", "f", "-printf", "%s %T@ %p\\n"])
        inspect = {"gpucache inspect": self._ours("inspect"), "find, with stat": files}
        if has_ccache:
            inspect["ccache -s"] = self._ccache("-s")
        yield compare(f"inspect of {self._entries} entries", inspect, rounds, absent)
        listing = {"gpucache inspect --list": self._ours("inspect", "--list"), "find, with stat": files}
        yield compare(f"inspect --list of {self._entries} entries", listing, rounds)
        hashed = process([sys.executable, "-c", HASH, self._root])
        verify = {"gpucache verify": self._ours("verify"), "reading and XXH3 of all": hashed}
        yield compare(f"verify of {self._entries} entries", verify, rounds)
        evict: dict[str, Side] = {
            "gpucache evict --all": process(
                self._command("evict", "--all", "--yes"), before=self._link, **self._environment(self._copy)
            ),
            "find -delete": process(["find", self._copy, "-type", "f", "-delete"], before=self._link),
        }
        if has_ccache:
            evict["ccache --evict-older-than"] = process(
                ["ccache", "--evict-older-than", "0s"],
                before=self._make_ccache,
                CCACHE_DIR=str(self._place / "ccache"),
            )
        yield compare(f"evict --all of {self._entries} entries", evict, rounds, absent)

    def _ours(self, *arguments: str) -> Side:
        return process(self._command(*arguments), **self._environment(self._root))

    def _command(self, *arguments: str) -> list[str | Path]:
        return [sys.executable, "-m", "gpucache", *arguments, "--cache", "gpucache"]

    def _environment(self, root: Path) -> dict[str, Any]:
        return {"GPUCACHE_DIR": str(root), "HOME": str(self._place / "home"), "COLUMNS": "80"}

    def _link(self) -> None:
        """A copy to be emptied: entries as hard links, and separate histories, as they are appended to."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._root, self._copy, copy_function=_copied)

    def _ccache(self, *arguments: str) -> Side:
        return process(["ccache", *arguments], CCACHE_DIR=str(self._place / "ccache"))

    def _make_ccache(self) -> bool:
        """As many empty results under ccache's own names; returns whether it is installed."""
        if shutil.which("ccache") is None:
            return False
        place = self._place / "ccache"
        shutil.rmtree(place, ignore_errors=True)
        for number in range(self._entries):
            name = f"{number * 2654435761 % 2**32:08x}{number:024x}"
            folder = place / name[0] / name[1]
            if number < 4096:
                folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name[2:]}R").write_bytes(b"")
        environment = {**os.environ, "CCACHE_DIR": str(place)}
        subprocess.run(["ccache", "-s"], env=environment, check=True, stdout=subprocess.DEVNULL)
        return True
