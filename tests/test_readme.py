"""The README's samples in their order, as a newcomer pastes them, and the sample of a manual page."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpucache.cli import topics
from tests.children import run_text

_README = Path(__file__).parents[1] / "README.md"
_SAMPLE = re.compile(r"(?<!-->\n)```(sh|console)\n(.*?)```\n", re.DOTALL)
"""A block for the shell, unless a comment above it says otherwise."""
_VARIES = (
    (r"[0-9]+(?:\\\.[0-9]+)?\\ (?:ms|s|[KM]iB)\b", r"[0-9.]+ (?:ms|s|[KM]iB)"),
    (r"\b[0-9a-f]{12}\b", "[0-9a-f]{12}"),
    (r"/home/me\S*", r"\\S+"),
    ("─+", "─+"),
    (r"(?:\\ )+", " +"),
    (r"\\\.\\\.\\\.", ".*"),
)
"""Patterns of escaped text, and the pattern of what may be there instead."""


def _commands() -> Iterator[tuple[str, str]]:
    """Each sample's shell commands, and the output that it shows."""
    for kind, text in _SAMPLE.findall(_README.read_text(encoding="utf-8")):
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


@pytest.mark.slow
def test_the_samples_do_as_shown(tmp_path: Path) -> None:
    """In an empty directory with an empty home, each prints what the README shows."""
    pytest.importorskip("cuda.bindings.nvrtc")
    (tmp_path / "home").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUCACHE_", "XDG_"))}
    kept["HOME"] = str(tmp_path / "home")
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    commands = list(_commands())
    assert len(commands) > 10
    for command, shown in commands:
        done = run_text(["bash", "-ec", f"{{ {command}\n}} 2>&1"], cwd=tmp_path, env=kept)
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
    (tmp_path / "gather.cl").write_text(topics.KERNEL, encoding="ascii")
    done = run_text(
        [sys.executable, "-c", topics.LAUNCHER],
        cwd=tmp_path,
        env={**os.environ, **opencl_environment, "GPUCACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.stderr.strip().endswith("gpucache.errors." + topics.FAILURE.replace("\n", " "))
