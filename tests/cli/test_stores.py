"""``inspect``, ``verify`` and ``evict`` of a store, each in its own process."""

import io
import json
from pathlib import Path

import pytest

from gpucache.cli import main
from gpucache.remote.folder import FolderObjects
from tests.contracts.examples import EXAMPLES


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
