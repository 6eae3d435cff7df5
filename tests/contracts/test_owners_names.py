"""A name is the owner's only as the owner writes it: what people and file managers call a copy is theirs.

Each system has a real cache, and beside every file and folder of it lie copies under such names.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucache.cli import main
from gpucache.outcomes import CacheEntry
from tests.contracts.examples import EXAMPLES, age, open_example

_ANY_CASE = {
    "darktable": "a folder is called like a device, in the letters of its driver",
    "opencv": "a folder is called like a device, in the letters of its driver",
    "futhark": "people give a file its name",
    "vulkan": "programs give a file its name, as they like",
}
"""Systems whose owner can write a name in other cases too, and why."""


@pytest.fixture(autouse=True)
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about what can compile."""
    monkeypatch.setattr("gpucache.probe.ask", lambda *_: [])


def _renamed(name: str, *, cases: bool) -> Iterator[str]:
    """What a copy of something is called by file managers, editors and people."""
    stem, dot, ending = name.rpartition(".")
    yield from (f"Copy of {name}", f"{name} (1)", f"{name} copy", f"{name}.bak", f"{name}~", f"{name}.orig")
    if dot:
        yield from (f"{stem} (1).{ending}", f"{stem} copy.{ending}", f"{stem} - Copy.{ending}")
    if cases:
        yield from (one for one in (name.upper(), name.lower(), name.swapcase()) if one != name)


def _copies(path: Path, *, cases: bool) -> Iterator[Path]:
    """Copies of a file or folder beside it, made now."""
    for name in _renamed(path.name, cases=cases):
        copy = path.with_name(name)
        if os.path.lexists(copy):
            continue
        if path.is_dir():
            shutil.copytree(path, copy)
        else:
            shutil.copyfile(path, copy)
        yield copy


def _files(path: Path) -> Iterator[Path]:
    yield from (one for one in (path, *path.rglob("*")) if not one.is_dir())


def _shown(entries: list[CacheEntry]) -> list[tuple[str, str, str]]:
    return sorted((one.key, one.path, str(one.damage)) for one in entries)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_copy_under_another_name_is_no_entry_and_stays(name: str, tmp_path: Path) -> None:
    """It is neither listed nor joined to an entry, and no repair or eviction touches it."""
    place = EXAMPLES[name].make(tmp_path / "cache")
    before = _shown(list(open_example(name, place).scan()))
    own = sorted((tmp_path / "cache").rglob("*"))
    copies = [copy for path in own for copy in _copies(path, cases=name not in _ANY_CASE)]
    mine = {path: path.read_bytes() for copy in copies for path in _files(copy)}
    age(tmp_path / "cache")
    after = _shown(list(open_example(name, place).scan()))
    if not EXAMPLES[name].opaque:  # of which every file is an entry, and none is ever removed
        assert after == before, sorted(set(after) ^ set(before))[:6]
    for operation in (("verify", "--repair"), ("evict", "--all", "--yes")):
        main([*operation, "--cache", f"{name}:{place}"])
        lost = [path for path, held in mine.items() if not path.is_file() or path.read_bytes() != held]
        assert not lost, (operation, len(lost), lost[:6])
