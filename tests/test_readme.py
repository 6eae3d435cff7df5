"""The README's samples in their order, as a newcomer pastes them, and the sample of a manual page."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpucache.cli import manual
from tests.children import run_text

README = Path(__file__).parents[1] / "README.md"
PICTURE = README.parent / ".github/first-run.svg"
_SAMPLE = re.compile(r"(?<!-->\n)```(sh|console)\n(.*?)```\n", re.DOTALL)
"""A block for the shell, unless a comment above it says otherwise."""
SHOWN = 5
"""How many samples are in the picture: a program, two runs of it, another program, and its warming."""
_VARIES = (
    (r"[0-9]+(?:\\\.[0-9]+)?\\ (?:ms|s|[KM]iB)\b", r"[0-9.]+ (?:ms|s|[KM]iB)"),
    (r"\b[0-9a-f]{12}\b", "[0-9a-f]{12}"),
    (r"\d{4}\\-\d\d\\-\d\dT[\d:]{8}Z", r"[0-9T:-]{19}Z"),
    (r"/home/me\S*", r"\\S+"),
    ("─+", "─+"),
    (r"(?:\\ )+", " +"),
    (r"\\\.\\\.\\\.", ".*"),
)
"""Patterns of escaped text, and the pattern that replaces each."""


def commands() -> Iterator[tuple[str, str]]:
    """Each sample's shell commands, and the output that it shows."""
    for kind, text in _SAMPLE.findall(README.read_text(encoding="utf-8")):
        if kind == "sh":
            yield text, ""
        else:
            for one in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, shown = one.partition("\n")
                yield command, shown


def _pattern(shown: str) -> str:
    pattern = re.escape(shown.strip())
    for varying, instead in _VARIES:
        pattern = re.sub(varying, instead, pattern)
    return pattern


def newcomer(place: Path) -> dict[str, str]:
    """The environment of a user with an empty home directory, which it makes below an empty directory."""
    home = place / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUCACHE_", "XDG_"))}
    return kept | {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }


def test_the_picture_shows_the_first_samples() -> None:
    """It has the README's commands as text, and no address but those of its XML namespaces."""
    told = PICTURE.read_text(encoding="utf-8")
    shown = "".join("".join(ElementTree.fromstring(told).itertext()).split())
    for command, _ in islice(commands(), SHOWN):
        assert "".join(command.split()) in shown
    assert {*re.findall(r"https?://[^\s\"')]+", told)} <= {"http://www.w3.org/2000/svg"}


@pytest.mark.slow
def test_the_samples_do_as_shown(tmp_path: Path) -> None:
    """In an empty directory with an empty home, each prints the output in the README."""
    pytest.importorskip("cuda.bindings.nvrtc")
    environment = newcomer(tmp_path)
    assert len(list(commands())) > 10
    for command, shown in commands():
        done = run_text(["bash", "-ec", f"{{ {command}\n}} 2>&1"], cwd=tmp_path, env=environment)
        if shown:
            assert re.fullmatch(_pattern(shown), done.stdout.strip(), re.DOTALL), (
                command,
                done.stdout,
                shown,
            )
        else:
            assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_kernel_of_the_page_on_checks_fails_as_shown(
    tmp_path: Path, opencl_environment: Mapping[str, str]
) -> None:
    """The program that launches it ends with the sentence below it."""
    kernel, launcher, failure = manual.verbatims("checks")["CHECKS"]
    (tmp_path / "gather.cl").write_text(kernel, encoding="ascii")
    done = run_text(
        [sys.executable, "-c", launcher],
        cwd=tmp_path,
        env={**os.environ, **opencl_environment, "GPUCACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.stderr.strip().endswith("gpucache.errors." + failure.replace("\n", " "))
