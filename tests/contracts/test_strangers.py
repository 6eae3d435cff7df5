"""Foreign files in and next to every cache: evictions and repairs leave them, and report them.

Each system has its own aged cache, with foreign files in every directory of it; and there are places that
only look like such a cache. An eviction or a repair removes only the system's own files.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpucache.assembly import open_cache
from gpucache.caches.interface import Cache
from gpucache.caches.known_caches import open_places
from gpucache.cli import main
from gpucache.errors import CacheUnusableError
from gpucache.settings import read_settings
from tests.contracts.examples import EXAMPLES, age

_MINE = b"mine, and dear to me\n"
_KEY = hashlib.sha256(b"mine").hexdigest()
_NAMES = (
    "readme.txt", "diary.txt", "results.csv", "7.bin", "12.src", "list.json", "notes.gpc", "info.txt",
    "a.lock", "index~", "program.bc~", "entry-my_notes", "tempfile_thesis.tex", ".git/HEAD",
    f"{_KEY}.txt", "cache.sqlite", "a\x1b[31m\x07\u009b2J\u202e[/red].txt",
)  # fmt: skip
OPERATIONS = (
    ("verify", "--repair"),
    ("evict", "--older-than", "1d"),
    ("evict", "--max-size", "1B"),
    ("evict", "--all", "--yes"),
    ("verify", "--repair"),
)
every_judged = pytest.mark.parametrize("name", [name for name, one in EXAMPLES.items() if not one.opaque])
"""Systems whose entries may be removed."""


def _run(*arguments: object) -> int:
    return main([str(one) for one in arguments])


@pytest.fixture(autouse=True)
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpucache.probe.ask.ask", lambda *_: [])


def _folders(root: Path) -> list[Path]:
    return [root, *sorted(path for path in root.rglob("*") if path.is_dir())]


def _lay(path: Path, content: bytes = _MINE) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(content)
    return path


def _beside(folder: Path, outside: Path) -> None:
    """Foreign files of every kind in one directory of a cache."""
    for name in _NAMES:
        if not os.path.lexists(folder / name.partition("/")[0]) or "/" in name:
            _lay(folder / name)
    os.link(outside / "thesis.tex", folder / "hard.txt")
    (folder / "link.txt").symlink_to(outside / "thesis.tex")
    (folder / "linked").symlink_to(outside)


def _strangers(place: Path, known: set[Path]) -> dict[str, object]:
    """Foreign files at a place: their contents or targets."""
    found: dict[str, object] = {}
    for path in place.rglob("*"):
        if path not in known and not (path.is_dir() and not path.is_symlink()):
            held = path.readlink() if path.is_symlink() else path.read_bytes()
            found[str(path.relative_to(place))] = (held, path.lstat().st_mtime_ns)
    return found


def _kept(place: Path) -> set[Path]:
    """The files that our own cache keeps about removed entries."""
    kept = {path for folder in ("programs", "quarantine") for path in (place / "v1" / folder).rglob("*")}
    return {*kept, place / "v1" / "removed.jsonl", place / "v1" / "log.jsonl"}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    _lay(tmp_path / "outside" / "thesis.tex")
    return tmp_path / "outside"


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_others_keep_in_a_cache_stays_and_is_told(
    name: str, tmp_path: Path, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every directory of a cache has a user's files, hard links and links; none of them goes or changes.

    One has terminal control sequences in its name, which are not printed.
    """
    place = EXAMPLES[name].make(tmp_path / "cache")
    flat = all(path.is_file() for path in place.iterdir()) if place.is_dir() else False
    known = set(tmp_path.rglob("*")) - set(outside.rglob("*"))
    for folder in _folders(tmp_path / "cache"):
        _beside(folder, outside)
    age(tmp_path)
    mine = _strangers(tmp_path, known)
    told = []
    for operation in OPERATIONS:
        capsys.readouterr()
        _run(*operation, "--cache", f"{name}:{place}")
        assert _strangers(tmp_path, known | _kept(place)) == mine, operation
        said = "".join(capsys.readouterr())
        assert said.replace("\n", "").isprintable() and "unexpected" not in said
        told.append(any(one.partition("/")[0] in said for one in _NAMES))
    if EXAMPLES[name].alone:
        # If no foreign file can be in an entry, verify reports them, while there are entries.
        assert told[0] if flat else told[OPERATIONS.index(("evict", "--all", "--yes"))]


@every_judged
def test_a_cache_without_strangers_is_emptied(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without foreign files a cache is emptied, so the tests above keep it only for their sake."""
    place = EXAMPLES[name].make(tmp_path / "cache")
    age(tmp_path)
    assert _run("evict", "--all", "--yes", "--cache", f"{name}:{place}") == 0
    capsys.readouterr()
    assert _run("--json", "inspect", "--list", "--cache", f"{name}:{place}") == 0
    assert '"outcomes": []' in capsys.readouterr().out


@every_judged
def test_caches_of_others_inside_stay(name: str, tmp_path: Path) -> None:
    """Another system's whole cache is in a directory of this one's; none of it is removed."""
    place = EXAMPLES[name].make(tmp_path / "cache")
    known = set(tmp_path.rglob("*"))
    for inner in EXAMPLES:
        EXAMPLES[inner].make(tmp_path / "cache" / f"of-{inner}")
    age(tmp_path)
    mine = _strangers(tmp_path, known)
    for operation in OPERATIONS[-2:]:
        _run(*operation, "--cache", f"{name}:{place}")
        assert _strangers(tmp_path, known | _kept(place)) == mine, operation


def _home(place: Path) -> None:
    for name in (".ssh/id", "thesis/a.tex", ".bashrc", "v1/notes.txt", "index", "entries/list.json"):
        _lay(place / name)


def _checkout(place: Path) -> None:
    objects = (f".git/objects/{_KEY[number : number + 2]}/{_KEY[2:40]}" for number in range(0, 8, 2))
    for name in (".git/index", ".git/HEAD", *objects, "v1/targets.json", "v1/entries/users/42.json", "tmp/a"):
        _lay(place / name)


def _store_by_hash(place: Path) -> None:
    """Names of every length of digest, in directories of the first digits."""
    for number in range(4):
        digits = hashlib.sha512(bytes([number])).hexdigest()
        for length in (14, 32, 40, 64):
            _lay(place / digits[:2] / digits[2:length])
            _lay(place / "entries" / digits[:2] / digits[2:length])
            _lay(place / "v1" / "entries" / digits[:2] / f"{digits[:length]}.gpc")
            _lay(place / digits[:length] / "info")
            _lay(place / digits[:length] / "binary")
    _lay(place / "tmp" / "entry-abcdefgh")
    _lay(place / "lock")
    _lay(place / "v1" / "log.jsonl", b'{"level": "info", "message": "of another program"}\n')
    for name in ("records.row", "missed.lock"):
        _lay(place / "v1" / name)


def _by_number(place: Path) -> None:
    for number in range(3):
        _lay(place / "12" / "25" / f"2024122510300{number}")
        _lay(place.joinpath(*["20241225103000123"] * 4, f"{number}.bin"))
        _lay(place.joinpath(*["20241225103000123"] * 4, f"{number}.lock"))
    _lay(place / "cache_size.txt")
    _lay(place / "cache_size.txt.lock")


def _in_capitals(place: Path) -> None:
    """Directories of letters as PoCL has them, its temporary names, and a program's own."""
    for name in ("tempdir_thesis/a.tex", "tempfile_thesis.tex", "_UNCACHED_photos/1.jpg", "AB/readme.txt"):
        _lay(place / name)
    _lay(place / "AB" / "CDEFGHIJKLMNOPABCDEFGHIJKLMNOPABCDEFG" / "diary.txt")


PLACES = (_home, _checkout, _store_by_hash, _by_number, _in_capitals)


@pytest.mark.parametrize("make", PLACES)
@every_judged
def test_nothing_goes_from_what_only_looks_like_a_cache(
    name: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    """Homes, checkouts and other stores may have a cache's names; their contents show that they are not."""
    place = tmp_path / "place"
    make(place)
    age(tmp_path)
    mine = _strangers(tmp_path, set())
    for operation in OPERATIONS[-2:]:
        _run(*operation, "--cache", f"{name}:{place}")
        assert _strangers(tmp_path, set()) == mine, operation


@every_judged
def test_nothing_is_removed_at_the_top_of_the_machine(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that would remove or move anything there fails first."""

    def refuse(*arguments: object, **_: object) -> None:
        raise AssertionError(arguments)

    for call in ("unlink", "rename", "replace", "rmdir", "remove", "truncate", "mkdir"):
        monkeypatch.setattr(os, call, refuse)
    for operation in OPERATIONS:
        assert _run("--root", "/", *operation) in (0, 3, 5)
        assert _run(*operation, "--cache", f"{name}:/") in (0, 1, 2, 3, 5)
        assert "defect" not in capsys.readouterr().err


def _swapped(path: Path, onto: Path) -> None:
    shutil.move(path, onto)
    path.symlink_to(onto)


def _opened(root: Path) -> Cache:
    return open_cache(read_settings({"GPUCACHE_DIR": str(root)}))


def _own_folders(root: Path) -> Iterator[Path]:
    yield from (path for path in _folders(root) if path != root)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ("futhark", "rocfft")])
def test_a_folder_that_became_a_link_since_the_scan_is_not_followed(name: str, tmp_path: Path) -> None:
    """If any directory of a cache is replaced by a link to a copy of it, the copy stays whole."""
    count = len(list(_own_folders(EXAMPLES[name].make(tmp_path / "first"))))
    for number in range(count):
        root = EXAMPLES[name].make(tmp_path / f"cache-{number}")
        age(tmp_path)
        (cache,) = open_places(name, root, os.environ) if name != "gpucache" else [_opened(root)]
        entries = list(cache.scan())
        folder = list(_own_folders(root))[number]
        copy = tmp_path / f"copy-{number}"
        _swapped(folder, copy)
        before = _strangers(copy, set())
        for entry in entries:
            cache.remove(entry, "--all")
        cache.finish_removals()
        with suppress(CacheUnusableError):  # our own cache, where that directory leads to all entries
            for checked in list(cache.leftovers()):
                cache.repair(checked, None)
        assert _strangers(copy, set()) == before, folder
