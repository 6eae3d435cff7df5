"""The command's own start, beside the import of the library that it is made with."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.large_cache import make_cache
from tests.benchmarks.measure import Comparison, Effort, compare, process


def run(effort: Effort) -> Iterator[Comparison]:
    """``--version``, ``--help``, ``inspect`` beside importing click."""
    with tempfile.TemporaryDirectory() as folder:
        make_cache(Path(folder, "root"), 2, 2)
        place: dict[str, Any] = {"GPUCACHE_DIR": f"{folder}/root", "HOME": folder}
        command = [Path(sys.executable).with_name("gpucache")]
        imported = process([sys.executable, "-c", "import click"])
        for title, arguments in (
            ("gpucache --version", ["--version"]),
            ("gpucache --help", ["--help"]),
            ("gpucache inspect --cache gpucache", ["inspect", "--cache", "gpucache"]),
            ("gpucache inspect", ["inspect"]),
        ):
            sides = {title: process([*command, *arguments], **place), "import click": imported}
            yield compare(f"The start of {title}", sides, effort.rounds)
