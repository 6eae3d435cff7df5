"""One broken cache does not affect the others: they are finished, and the broken one is reported.

With ``--cache all`` every verb meets a cache of each system that this user may not read, or in whose format
something fails. It is never an empty cache: exit 5, a sentence that names the place, and a count.
"""

import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.registry import SYSTEMS, load_system
from gpucache.cli import main
from tests.contracts.examples import EXAMPLES, open_example
from tests.unprivileged import as_nobody, needs_root

VERBS: tuple[tuple[str, ...], ...] = (
    ("inspect",),
    ("inspect", "--list"),
    ("verify",),
    ("verify", "--repair"),
    ("evict", "--older-than", "1d", "--dry-run"),
    ("evict", "--older-than", "1d"),
    ("evict", "--all", "--yes"),
)


@pytest.fixture(autouse=True)
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpucache.probe.ask.ask", lambda *_: [])


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A directory that everybody may enter, unlike pytest's own."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _asked(verb: tuple[str, ...], *places: str) -> tuple[int, list[str], dict[str, object]]:
    """The exit code of a verb over some caches, its unreadable caches, and the summary of its document."""
    caches = [word for place in places for word in ("--cache", place)]
    with redirect_stdout(StringIO()) as out:
        code = main(["--json", *verb, *caches])
    document = json.loads(out.getvalue())
    if "error" in document:  # our own root, or a file that may not be looked at, where it is named alone
        return code, [document["error"]["message"]], {}
    return code, document["summary"]["unread"], document["summary"]


def _folders_of_entries(root: Path, name: str, place: Path) -> list[Path]:
    """The directories below the root that contain entries or are entries."""
    entries = [Path(entry.path) for entry in open_example(name, place).scan()]
    above = {path for entry in entries for path in (entry, *entry.parents) if path.is_relative_to(root)}
    return sorted(path for path in above if path.is_dir())


@needs_root
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_folder_that_may_not_be_read_is_told_by_every_verb(name: str, everybodys: Path) -> None:
    """The place itself and each directory on the way to entries: exit 5, and one unreadable place."""
    root = everybodys / "root"
    place = EXAMPLES[name].make(root)
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)

    def work() -> str:
        return json.dumps([_asked(verb, f"{name}:{place}")[:2] for verb in VERBS])

    for verb in VERBS[:4]:  # no user may read its imports
        _asked(verb, f"{name}:{place}")
    wrong = []
    for folder in _folders_of_entries(root, name, place):
        folder.chmod(0o700)
        for verb, (code, unread) in zip(VERBS, json.loads(as_nobody(work)), strict=True):
            if code != 5 or not any(str(everybodys) in sentence for sentence in unread):
                wrong.append((str(folder.relative_to(everybodys)), " ".join(verb), code, unread))
        folder.chmod(0o755)
    assert not wrong


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_fails_in_a_format_costs_its_own_cache_alone(name: str, tmp_path: Path) -> None:
    """The cache named after it is finished by every verb, with exit 5 for the failed one.

    Each method that a format has itself fails, and of one format each that any has.
    """
    for failing in ("items", "look", "check", "remove", "beside", "closed"):
        if name == "cuda" or (EXAMPLES[name].opaque and failing == "remove"):
            continue  # of which nothing is removed here
        place = EXAMPLES[name].make(tmp_path / failing / "broken")
        cache = load_system(name).open(Location(name, str(place), "--cache", enabled=True))
        made = type(vars(cache)["_format"])
        attributes = (failing, "remove_together") if failing == "remove" else (failing,)
        theirs = [vars(one) for one in made.__mro__ if one.__module__ not in _SHARED]
        if name == "numba" or any(attribute in one for attribute in attributes for one in theirs):
            with pytest.MonkeyPatch.context() as patch:
                for attribute in attributes:
                    if hasattr(made, attribute):
                        patch.setattr(made, attribute, _fail)
                _go_on(name, place, failing)


def _fail(*_: object, **__: object) -> None:
    raise KeyError("a defect")


def _go_on(name: str, place: Path, failing: str) -> None:
    """Every verb finishes another cache after that of a format in which something fails."""
    for verb in VERBS:
        other = "numba" if name == "cupy" else "cupy"
        sound = EXAMPLES[other].make(place.parent / f"sound-{len(list(place.parent.iterdir()))}")
        code, unread, summary = _asked(verb, f"{name}:{place}", f"{other}:{sound}")
        if "evict" in verb and "--dry-run" not in verb:
            assert not list(open_example(other, sound).scan()), (verb, failing)
        elif "verify" in verb:
            assert isinstance(checked := summary["checked"], int) and checked >= 3, (verb, failing)
        meets = failing in _MET["evict" if "evict" in verb else " ".join(verb)]
        assert not meets or (code == 5 and any("a defect" in one for one in unread)), (verb, failing, unread)


_SHARED = ("gpucache.caches.format",)
_MET = {
    "inspect": ("items", "look", "closed"),
    "inspect --list": ("items", "look", "closed"),
    "verify": ("items", "look", "check", "closed", "beside"),
    "verify --repair": ("items", "look", "check", "closed", "beside"),
    "evict": ("items", "look", "closed"),
}
"""The methods of a format that each verb calls."""


def test_our_own_cache_that_cannot_be_used_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --cache all the other caches are finished."""
    cupy = EXAMPLES["cupy"].make(tmp_path / "cupy")
    (tmp_path / "own").write_text("mine")
    monkeypatch.setenv("CUPY_CACHE_DIR", str(cupy))
    monkeypatch.setenv("GPUCACHE_DIR", str(tmp_path / "own"))
    for shared in ("TMPDIR", "POCL_CACHE_DIR"):  # by tests
        monkeypatch.setenv(shared, str(tmp_path / "none"))
    code, unread, summary = _asked(("evict", "--all", "--yes"), "all")
    assert (code, summary["removed"]) == (5, 3) and any(str(tmp_path / "own") in one for one in unread)


def test_a_cache_of_taichi_without_its_index_is_emptied(tmp_path: Path) -> None:
    """There is no row to remove from it."""
    place = EXAMPLES["taichi"].make(tmp_path / "cache")
    (place / "ticache.tcb").unlink()
    code, _, summary = _asked(("evict", "--all", "--yes"), f"taichi:{place}")
    assert (code, summary["removed"]) == (0, 3)
