"""``inspect``, ``verify`` and ``evict`` of a store, each in its own process."""

import io
import json
import os
from pathlib import Path

import pytest

from gpucache.caches.registry import load_system
from gpucache.cli import main
from gpucache.probe.profile import Profile, encode_profile
from gpucache.remote.folder import FolderObjects
from tests.contracts.examples import EXAMPLES
from tests.remote.servers import Silent


@pytest.fixture(name="store")
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in a directory with three entries of CuPy and three of our own."""
    for name in ("gpucache", "cupy"):
        EXAMPLES[name].make(tmp_path / name)
    monkeypatch.setenv("GPUCACHE_DIR", str(tmp_path / "gpucache"))
    store = str(tmp_path / "store")
    caches = ("--cache", "gpucache", "--cache", f"cupy:{tmp_path / 'cupy'}")
    assert main(["push", store, *caches, "--quiet"]) == 0
    return store


def _json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, object]:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def _summary(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, object]:
    found = _json(capsys, *arguments, code=code)["summary"]
    assert isinstance(found, dict)
    return found


def test_inspect_shows_each_system_of_a_store(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With --list it shows every entry."""
    caches = _summary(capsys, "inspect", store)["caches"]
    assert isinstance(caches, list)
    assert [(one["cache"], one["entries"]) for one in caches] == [("cupy", 3), ("gpucache", 3)]
    outcomes = _json(capsys, "inspect", store, "--list")["outcomes"]
    assert isinstance(outcomes, list)
    assert len(outcomes) == 6


def test_verify_finds_damage_in_a_store_and_repairs_it(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The entries of a damaged file go, and nothing else: the three of CuPy have the same binary."""
    assert _summary(capsys, "verify", store)["sound"] == 6
    blob = next(path for path in Path(store, "blobs").rglob("*") if path.is_file())
    blob.write_bytes(b"other")
    assert _summary(capsys, "verify", store, code=3)["wrong"] == 3
    assert _summary(capsys, "verify", store, "--repair")["repaired"] == 3
    assert _summary(capsys, "verify", store)["checked"] == 3


def test_evict_bounds_a_store(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run removes nothing, --all everything."""
    outcomes = _json(capsys, "evict", store, "--older-than", "1d", "--dry-run")["outcomes"]
    assert isinstance(outcomes, list)
    assert len(outcomes) == 6
    assert _summary(capsys, "verify", store)["checked"] == 6
    assert _summary(capsys, "evict", store, "--all", "--yes")["removed"] == 6
    assert _summary(capsys, "verify", store)["checked"] == 0


@pytest.mark.parametrize(("systems", "entries"), [(("opencv", "taichi"), 6), (("opencv",), 3)])
def test_pulled_entries_of_opencv_are_where_it_looks_afterwards(
    systems: tuple[str, ...],
    entries: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its place depends on whether there is a ~/.cache, which other systems bring along, now or later."""
    for name in ("opencv", "taichi"):
        EXAMPLES[name].make(tmp_path / name)
    caches = [f"--cache={name}:{tmp_path / name}" for name in ("opencv", "taichi")]
    assert main(["key", str(tmp_path / "key"), "--quiet"]) == 0
    monkeypatch.setenv("GPUCACHE_SIGNING_KEY", str(tmp_path / "key"))
    assert main(["push", str(tmp_path / "store"), *caches, "--quiet"]) == 0
    for variable in ("XDG_CACHE_HOME", "OPENCV_OPENCL_CACHE_DIR"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    profile = tmp_path / "none.json"
    profile.write_bytes(encode_profile(Profile((), {})))
    words = (*(f"--cache={name}" for name in systems), "--device-profile", str(profile))
    assert _summary(capsys, "pull", str(tmp_path / "store"), *words)["pulled"] == entries
    (opencv,) = load_system("opencv").locations(os.environ)
    assert list(Path(opencv.root).rglob("*.bin")) and Path(opencv.root).is_relative_to(tmp_path)


def test_evict_all_asks_about_the_store_by_its_url(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question names the URL, so that nobody empties a shared store by mistake."""
    asked = io.StringIO("n\n")
    monkeypatch.setattr(asked, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", asked)
    assert main(["evict", store, "--all"]) != 0
    shown = capsys.readouterr()
    assert f"Remove all entries of {store}?" in shown.out + shown.err
    assert _summary(capsys, "verify", store)["checked"] == 6


@pytest.mark.parametrize("verb", ["inspect", "verify", "evict --all --dry-run"])
def test_the_store_is_closed(store: str, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """At the end of each verb that takes its URL."""
    closed: list[str] = []
    monkeypatch.setattr(FolderObjects, "close", lambda objects: closed.append(objects.url))
    assert main([*verb.split(), store]) == 0
    assert closed == [store]


def test_a_word_that_is_no_store_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """evict takes nothing else without an option; a store is not named next to --cache."""
    assert main(["evict", "saxpy.cl", "--all"]) == 2
    assert "--program" in capsys.readouterr().err
    assert main(["verify", "s3://bucket/x", "--cache", "cupy"]) == 2
    assert "--cache" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["pull", "inspect", "verify", "evict --all --yes", "push here"])
def test_a_directory_without_entries_is_told_to_be_no_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """A path with a typo is a usage error in every verb; only push makes a store."""
    EXAMPLES["gpucache"].make(tmp_path / "gpucache")
    words = [str(tmp_path / word) if word == "here" else word for word in verb.split()]
    (tmp_path / "empty" / "entries" / "2024").mkdir(parents=True)
    (tmp_path / "empty" / "entries" / "2024" / "05-01.txt").touch()
    assert main(["--root", str(tmp_path / "gpucache"), *words, str(tmp_path / "empty")]) == 2
    told = capsys.readouterr().err
    assert str(tmp_path / "empty") in told and "is not a store" in told


@pytest.mark.parametrize("verb", ["pull", "inspect", "verify", "evict --all --yes"])
def test_a_url_without_a_store_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    """So that a bucket with a typo is not taken for an empty store."""
    (tmp_path / "empty").mkdir()
    url = f"file://{tmp_path / 'empty'}"
    assert main(["--root", str(tmp_path / "gpucache"), *verb.split(), url]) == 5
    told = capsys.readouterr().err
    assert str(tmp_path / "empty") in told and "is not a store" in told


@pytest.mark.parametrize("verb", ["pull", "inspect", "verify", "evict --all --yes"])
def test_a_store_that_never_replies_is_waited_for_as_long_as_was_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """Every verb that takes a URL takes the time for it."""
    with Silent() as server:
        words = (*verb.split(), f"http://{server.address}", "--timeout", "0.2")
        assert main(["--root", str(tmp_path / "gpucache"), *words]) == 5
    assert "does not respond in time" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["a" * 300, "/" + "a" * 300, "/nosuch"])
def test_a_word_that_is_no_path_is_told_as_a_word(capsys: pytest.CaptureFixture[str], word: str) -> None:
    """Whatever the system says of it as a path."""
    assert main(["inspect", word]) == 2
    assert "no program has this name" in (told := capsys.readouterr().err) or "program, target or key" in told
