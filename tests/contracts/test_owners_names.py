"""A name is the owner's only as the owner writes it: people's and file managers' copies are not entries.

Each system has a real cache with copies under such names next to every file and directory.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.engine.verify import repaired, run_verify
from tests.contracts.examples import EXAMPLES, age, open_example

_ANY_CASE = {
    "darktable": "a folder is called like a device, in the letters of its driver",
    "opencv": "a folder is called like a device, in the letters of its driver",
    "adaptivecpp": "a folder is called like a program, and its hash is of that name in its letters",
    "futhark": "people give a file its name",
    "torch-extensions": "programs give a module its name",
    "vulkan": "programs give a file its name, as they like",
    "onnxruntime-trt": "a model gives its graph a name, and a program its engines a prefix",
}
"""Systems whose owner can write a name with capitals too, and why."""


def _stem(name: str, mark: str) -> str:
    stem, dot, ending = name.rpartition(".")
    return f"{stem}{mark}.{ending}" if dot else f"{name}{mark}"


_RENAMINGS: dict[str, Callable[[str], str]] = {
    "Copy of NAME": "Copy of {}".format,
    "NAME (1)": "{} (1)".format,
    "NAME copy": "{} copy".format,
    "NAME.bak": "{}.bak".format,
    "NAME.orig": "{}.orig".format,
    "NAME~": "{}~".format,
    "STEM (1).ENDING": lambda name: _stem(name, " (1)"),
    "STEM copy.ENDING": lambda name: _stem(name, " copy"),
    "STEM - Copy.ENDING": lambda name: _stem(name, " - Copy"),
    "upper case": str.upper,
    "lower case": str.lower,
    "other case": str.swapcase,
}
"""Names that file managers, editors and people give to copies."""


def _copied(path: Path, copy: Path) -> dict[Path, bytes]:
    """The files of a copy of a file or directory."""
    (shutil.copytree if path.is_dir() else shutil.copyfile)(path, copy)
    files = (one for one in (copy, *copy.rglob("*")) if not one.is_dir())
    return {one: one.read_bytes() for one in files}


def _entries(name: str, place: Path) -> list[tuple[str, str, str]]:
    return sorted((one.key, one.path, str(one.damage)) for one in open_example(name, place).scan())


def _emptied(name: str, place: Path) -> None:
    """Repair a cache and then remove all of it, as verify and evict do."""
    cache = open_example(name, place)
    repaired(cache, list(run_verify(cache, None)))
    for entry in list(cache.scan()):
        cache.remove(entry, "--all")
    cache.finish_removals()


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_copy_under_another_name_is_no_entry_and_stays(name: str, tmp_path: Path) -> None:
    """A copy is neither listed nor joined to an entry, and no repair or eviction touches it.

    All copies of one file or directory are next to it at once.
    """
    example = EXAMPLES[name]
    paths = sorted(path.relative_to(tmp_path) for path in example.make(tmp_path / "a", 1).parent.rglob("*"))
    for number, path in enumerate(paths):
        root = tmp_path / str(number)
        place, own = example.make(root, 1), root.joinpath(*path.parts[1:])
        before, mine = _entries(name, place), dict[Path, bytes]()
        for words, renamed in _RENAMINGS.items():
            copy = own.with_name(renamed(own.name))
            if (
                own != root
                and not os.path.lexists(copy)
                and not (words.endswith("case") and name in _ANY_CASE)
            ):
                mine |= _copied(own, copy)
        age(root)
        assert example.opaque or _entries(name, place) == before  # of which every file is an entry
        _emptied(name, place)
        assert {one: one.read_bytes() if one.is_file() else None for one in mine} == mine
        shutil.rmtree(root)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "rocfft"])
def test_what_has_another_name_elsewhere_keeps_its_bytes_there(name: str, tmp_path: Path) -> None:
    """A file of a cache that is a hard link to a user's is never written in place.

    rocFFT's database is left out: SQLite writes it in place, whatever other names it has.
    """
    example = EXAMPLES[name]
    paths = sorted(path.relative_to(tmp_path) for path in example.make(tmp_path / "a").parent.rglob("*"))
    for number, path in enumerate(paths):
        root, mine = tmp_path / str(number), tmp_path / f"mine-{number}"
        place = example.make(root)
        own = root.joinpath(*path.parts[1:])
        if not own.is_file() or own.is_symlink():
            continue
        os.link(own, mine)
        before = mine.read_bytes()
        _emptied(name, place)
        assert mine.read_bytes() == before, own
