"""``gpucache warm -- COMMAND`` with real commands that keep small caches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run

_KEEPS = """
import os, pathlib
entry = pathlib.Path(os.environ["OPTIX_CACHE_PATH"], "kernel")
entry.parent.mkdir(exist_ok=True)
entry.exists() or entry.write_bytes(b"compiled")
"""


def test_the_environment_names_what_got_entries_alone(run: Run, tmp_path: Path) -> None:
    """Of all moved caches one was written, so one variable is needed."""
    into = tmp_path / "into"
    answer = run("warm", "--into", into, "--", sys.executable, "-c", _KEEPS, at=None)
    assert answer.code == 0, answer.out
    assert (into / "gpucache.env").read_text(
        encoding="utf-8"
    ) == f"OPTIX_CACHE_PATH={into / 'nvidia-optix'}\n"
    assert {path.name for path in into.iterdir()} == {"gpucache.env", "nvidia-optix"}


def test_where_nothing_was_warmed_the_environment_says_so(run: Run, tmp_path: Path) -> None:
    """The file exists for a deployment to read, and the exit code is 3."""
    answer = run("--json", "warm", "--into", tmp_path, "--", sys.executable, "-c", "", at=None)
    assert answer.code == 3
    assert answer.document["summary"]["missed"][0].startswith("nothing was warmed")
    assert not any(
        "is turned on" in note or "Futhark" in note for note in answer.document["summary"]["notes"]
    )
    assert (tmp_path / "gpucache.env").read_text(encoding="utf-8") == "# nothing is cached\n"


def test_text_below_the_cache_folder_is_told_and_warms_nothing(run: Run, tmp_path: Path) -> None:
    """A program that stores only a list there has no cache: exit 3, the file, and no variable to set."""
    keeps = "import os, pathlib; pathlib.Path(os.environ['XDG_CACHE_HOME'], 'recent').write_text('a picture')"
    answer = run("warm", "--json", "--into", tmp_path, "--", sys.executable, "-c", keeps, at=None)
    summary = answer.document["summary"]
    assert (answer.code, summary["added"], summary["environment"]) == (3, [], {})
    assert summary["missed"][0].startswith("nothing was warmed")
    assert "text of a program that gpucache does not know is not an entry: recent" in summary["notes"]


def test_jax_is_turned_on_and_that_is_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that uses JAX keeps its compiles, although the user's environment does not enable that."""
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    keeps = (
        "import os, pathlib; place = pathlib.Path(os.environ['JAX_COMPILATION_CACHE_DIR']);"
        "place.mkdir(exist_ok=True); entry = place / f'jit_f-{0:064x}-cache';"
        "entry.exists() or entry.write_bytes(b'binary')"
    )
    answer = run("warm", "--into", tmp_path / "into", "--", sys.executable, "-c", keeps, at=None)
    assert answer.code == 0
    assert "the JAX compilation cache was turned on" in answer.out and "SYCL" not in answer.out


_KEEPS_OURS = """
import os, pathlib
entry = pathlib.Path(os.environ["GPUCACHE_DIR"], "v1/entries/00", "0" * 64 + ".gpc")
entry.parent.mkdir(parents=True, exist_ok=True)
entry.exists() or entry.write_bytes(b"compiled")
"""


def test_a_command_finds_the_root_that_is_named(run: Run, tmp_path: Path) -> None:
    """With --root the command's own gpucache stores its entries there, and they are counted."""
    answer = run("warm", "--json", "--", sys.executable, "-c", _KEEPS_OURS, at=tmp_path / "named")
    assert (answer.code, [one["cache"] for one in answer.document["summary"]["added"]]) == (0, ["gpucache"])
    assert list((tmp_path / "named" / "v1" / "entries" / "00").iterdir())


_KEEPS_AND_FAILS = f"{_KEEPS}raise SystemExit(3)"


@pytest.mark.parametrize(
    "command", [("gpucache-no-such-command",), (sys.executable, "-c", "raise SystemExit(3)")]
)
def test_a_command_that_fails_leaves_no_folder(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    """The directories made for it are removed, and no environment is reported."""
    answer = run("warm", "--into", tmp_path / "a" / "b", "--", *command, at=None)
    assert answer.code == (127 if len(command) == 1 else 3)
    assert "Programs find" not in answer.out and list(tmp_path.iterdir()) == []


def test_what_a_failing_command_cached_stays(run: Run, tmp_path: Path) -> None:
    """Its caches are left for the next try, and no environment is written."""
    into = tmp_path / "into"
    answer = run("warm", "--into", into, "--", sys.executable, "-c", _KEEPS_AND_FAILS, at=None)
    assert answer.code == 3
    assert f"its caches are left below {into}; no gpucache.env was written" in answer.out
    assert "Programs find" not in answer.out
    assert [str(path.relative_to(into)) for path in into.rglob("*")] == [
        "nvidia-optix",
        "nvidia-optix/kernel",
    ]
