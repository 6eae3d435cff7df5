"""System roots on the command line: shown, checked, never changed; with and without a home."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import entry_files

if TYPE_CHECKING:
    from tests.cli.conftest import Filled, Run


@pytest.fixture
def system(mixed: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A warmed system root, as in an image."""
    root = tmp_path / "system"
    shutil.copytree(mixed.root, root)
    monkeypatch.setenv("GPUCACHE_SYSTEM_DIRS", str(root))
    return root


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUCACHE_DIR", raising=False)
    monkeypatch.setattr("gpucache.settings._default_root", lambda: None)


def test_inspect_shows_system_roots(run: Run, system: Path) -> None:
    """A system root is shown next to the user's own, and its entries are in the list."""
    (state,) = [
        one for one in run("inspect", "--json").document["summary"]["caches"] if one["role"] == "system"
    ]
    assert (state["root"], state["entries"]) == (str(system), len(entry_files(system)))
    listed = run("inspect", "--list", "--json").document["outcomes"]
    assert {Path(one["path"]) for one in listed} == set(entry_files(system))
    assert str(system) in run("inspect", "--list").out


@pytest.mark.slow
def test_without_a_home_system_roots_are_inspected_and_verified(
    run: Run, system: Path, homeless: None
) -> None:
    """In an image without a home inspect, --why and verify work on the system root, and change nothing."""
    before = {path: path.stat() for path in system.rglob("*")}
    assert run("inspect", "--json", at=None).document["summary"]["root"] == str(system)
    assert run("inspect", "--why", "twice.cu", at=None).code == 0
    answer = run("verify", "--json", "--load", at=None)
    assert answer.code == 0 and answer.document["summary"]["checked"] == len(entry_files(system))
    assert {path: path.stat() for path in system.rglob("*")}.keys() == before.keys()
    assert all(path.stat().st_mtime_ns == status.st_mtime_ns for path, status in before.items())


def test_evict_leaves_system_roots_alone(run: Run, system: Path, homeless: None) -> None:
    """System roots are never evicted: without a home there is no cache to evict."""
    answer = run("evict", "--all", "--yes", at=None)
    assert answer.code == 5 and "no home directory" in answer.err
    assert entry_files(system)


def test_an_unusable_system_root_is_told_where_there_is_no_home(
    run: Run, tmp_path: Path, homeless: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence has the problem with the only root."""
    monkeypatch.setenv("GPUCACHE_SYSTEM_DIRS", str(tmp_path / "nowhere"))
    answer = run("verify", at=None)
    assert answer.code == 5 and "nowhere is not used, as it does not exist" in answer.err
