"""Every file that a compiler opens for a source with odd includes is in the source's key."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucache.engine.workers.pool import Bounds, Done, run_isolated
from gpucache.keys import Closure
from gpucache.sources import SearchRule, Wanted, read_closure
from tests.sources.fuzzed_sources import Fuzzed, Writer, opened
from tests.trials import tell, trials

pytestmark = [pytest.mark.slow, pytest.mark.stress]

_OF_ONE_TREE = 20
_GUESSES = ("did you mean", 'use "quotes"', "file not found")
"""clang opens more files to propose another name, for a source that it refuses."""
_OF_CLANG = "modules.idx"
"""The index of modules that are built, and it builds none."""


def _closure(source: Fuzzed, rule: SearchRule, root: Path) -> Closure:
    text, dirs = source.source.encode(), [str(root / "a"), str(root / "b")]
    return read_closure(Wanted(text, rule, dirs, str(root / "cwd"), source.forced, source.definitions))


def _outside(path: Path, closure: Closure, again: Callable[[], Closure]) -> bool:
    """Whether the key would be the same with another file at a path that was opened."""
    if path.name == _OF_CLANG:
        return False
    if path.is_file():
        return str(path.resolve()) not in {os.path.realpath(each) for each in closure.files}
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError:  # a directory, or below a file: nothing else can be read there
        return False
    try:
        return again() == closure
    finally:
        path.unlink()
        for folder in missing:
            folder.rmdir()


@pytest.mark.parametrize(("name", "count"), [("nvrtc", 360), ("intel", 80), ("pocl", 60)])
def test_no_compiler_opens_a_file_outside_the_key(
    compiler: Callable[[str], Any], tmp_path: Path, name: str, count: int
) -> None:
    """Of sources that can be keyed: an opened file is covered, and one that was missing changes the key."""
    real, count = compiler(name), trials(count, 100 * count)
    work, keyed = [], {}
    for number in range(0, count, _OF_ONE_TREE):
        writer, root = Writer(number, nvrtc=name == "nvrtc"), tmp_path / str(number)
        writer.headers(root)
        found = [
            (each, _closure(each, real.rule, root)) for each in (writer.source() for _ in range(_OF_ONE_TREE))
        ]
        keyed[str(root)] = {each: closure for each, closure in found if closure.uncacheable is None}
        work.append((name, tuple(real.environment.items()), str(root), tuple(keyed[str(root)])))
    seen = 0
    outside: list[tuple[Fuzzed, Path]] = []
    for (_, _, place, sources), answer in run_isolated(opened, work, Bounds(watched=True)):
        told = answer.value if isinstance(answer, Done) else []  # some sources make compilers crash
        for source, (said, paths) in zip(sources, told, strict=bool(told)):
            seen += len(paths)
            closure, root = keyed[place][source], Path(place)
            outside += [
                (source, path)
                for path in paths
                if not any(guess in said for guess in _GUESSES)
                and _outside(path, closure, lambda: _closure(source, real.rule, root))  # noqa: B023
            ]
        shutil.rmtree(place)
    sources_keyed = sum(map(len, keyed.values()))
    tell(f"a file outside the key of {name}", sources_keyed, len(outside))
    assert outside == []
    assert sources_keyed > count // 6 and seen > sources_keyed // 8
