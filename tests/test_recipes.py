"""The recipes of gpucache-recipes(7): every command line is understood, and some are run."""

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from gpucache import settings
from gpucache.cli import manual
from gpucache.cli.group import gpucache
from gpucache.settings import file_defaults
from tests.caches.pytools import build as pytools
from tests.children import run_text

_RECIPES = manual.verbatims("recipes")
_TEXTS = [text for texts in _RECIPES.values() for text in texts]
_, _CRON = _RECIPES["A LIMIT EVERY DAY"]
_, _SETTINGS, _HOMES = _RECIPES["A MACHINE FOR MANY USERS"]
_DOCKERFILE = _RECIPES["IMAGES"][0]
(_SLURM,) = _RECIPES["A JOB ARRAY"]
_SOURCE = 'extern "C" __global__ void {0}(int *a) {{ *a = 1; }}\n'
_BIN = str(Path(sys.executable).parent)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the recipes are for Linux")


def _lines() -> Iterator[list[str]]:
    """The words after ``gpucache`` of every command line in a recipe."""
    for text in _TEXTS:
        for line in text.replace("\\\n", " ").splitlines():
            found = re.search(r"(?<![\w.-])gpucache ((?:-|warm|run|evict|inspect)[^|>]*)", line)
            if found and not line.lstrip().startswith("#"):
                yield shlex.split(found[1])


@pytest.mark.parametrize("words", list(_lines()), ids=" ".join)
def test_a_command_line_is_understood(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every option and argument is one that the verb has."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recording").mkdir()
    (tmp_path / "programs.toml").touch()
    own = words[: words.index("--")] if "--" in words else words
    own = [word.replace("$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT", "1/2") for word in own]
    own = [word if word != "/app/all.toml" else "programs.toml" for word in own]
    context = gpucache.make_context("gpucache", [*own])
    assert isinstance(context.command, click.Group)
    _, verb, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
    assert verb is not None
    verb.make_context(verb.name, rest, parent=context)


def test_the_settings_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is read, also with its line for a quota."""
    monkeypatch.setattr(settings, "MACHINE", str(tmp_path / "machine.toml"))
    text = _SETTINGS.replace("# dir", "dir")
    (tmp_path / "machine.toml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("USER", "me")
    assert file_defaults({})["GPUCACHE_DIR"] == "/scratch/me/gpucache"


@pytest.fixture
def sh(tmp_path: Path) -> Callable[..., str]:
    """Run a script in an empty directory, where ``gpucache`` is found; gives its output."""

    def run(script: str, **more: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUCACHE_")}
        environ = {**kept, "PATH": f"{_BIN}:{os.environ['PATH']}", "HOME": str(tmp_path), **more}
        done = run_text(["sh", "-e", "-c", script], env=environ, cwd=tmp_path)
        assert done.returncode == 0, done
        return done.stdout

    return run


@pytest.mark.slow
def test_tasks_of_an_array_build_all(sh: Callable[..., str], tmp_path: Path) -> None:
    """Each task builds other programs, together they build every one, and cron removes what is too much."""
    for name in ("one", "two", "three", "four", "five"):
        (tmp_path / f"{name}.cu").write_text(_SOURCE.format(name), encoding="utf-8")
    job = _SLURM.replace("/scratch/$USER", str(tmp_path)).replace(
        "--recording recording", "*.cu --target cuda:sm_90"
    )
    counts = []
    for task in ("1", "2", "3"):
        out = sh(job, SLURM_ARRAY_TASK_ID=task, SLURM_ARRAY_TASK_COUNT="3")
        counts.append(sum(map(int, re.findall(r"(\d+) built", out))))
    assert sum(counts) == 5 and max(counts) < 5
    assert sh(f"gpucache --root {tmp_path}/gpucache warm --check *.cu --target cuda:sm_90").count("hit") >= 5
    place = f"GPUCACHE_DIR={tmp_path}/gpucache "
    cron = _CRON.partition("*  ")[2].replace(".local/bin/", place).replace("20G", "0B")
    assert sh(cron.replace(" --cache all", "")) == ""
    assert "0 (0 B)" in sh(f"{place}gpucache inspect --stats")


@pytest.mark.slow
def test_an_image_serves_its_users(sh: Callable[..., str], tmp_path: Path) -> None:
    """What the stage of the Dockerfile fills, a user's program hits by the settings of the machine."""
    (tmp_path / "k.cu").write_text(_SOURCE.format("k"), encoding="utf-8")
    manifest = '[[program]]\nsource = "k.cu"\ntargets = ["cuda:sm_90"]\n'
    (tmp_path / "all.toml").write_text(manifest, encoding="utf-8")
    (line,) = (line for line in _DOCKERFILE.splitlines() if line.startswith("RUN gpucache"))
    sh(line.removeprefix("RUN ").replace("/app/", "").replace("/cache", "cache"))
    assert "1 hit" in sh(
        "gpucache warm --check k.cu --target cuda:sm_90", GPUCACHE_SYSTEM_DIRS=str(tmp_path / "cache")
    )


@pytest.mark.slow
def test_every_home_has_a_line(sh: Callable[..., str], tmp_path: Path) -> None:
    """With the size of the caches below it, whether or not it has one."""
    for user in ("ann", "bob"):
        (tmp_path / "home" / user).mkdir(parents=True)
    kept = pytools.put(tmp_path / "home" / "bob" / ".cache" / "pytools")
    kept.write_bytes(kept.read_bytes() + bytes(3 << 20))
    out = sh(_HOMES.replace("/home/*", f"{tmp_path}/home/*"))
    sizes = [(line.split()[0], line.rpartition("/")[2]) for line in out.splitlines()]
    assert sizes == [("0.0", "ann"), ("3.0", "bob")]
