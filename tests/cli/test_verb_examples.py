"""The examples and words of the manual texts are true: every example is read, and most are run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from gpucache.answers.schema import words
from gpucache.cli.generate import WORDS
from gpucache.cli.group import VERBS, gpucache
from gpucache.cli.manual import verbatims
from gpucache.cli.usage import EXAMPLES
from gpucache.manifest import read_manifest

if TYPE_CHECKING:
    from tests.cli.conftest import Run

COMMANDS = [one.command for examples in EXAMPLES.values() for one in examples]
SAXPY = """\
__kernel void saxpy(__global float *y, __global const float *x, float a)
{
    y[get_global_id(0)] += a * x[get_global_id(0)];
}
"""
SCALE = """\
template <typename T> __global__ void scale(T *x, T a) { x[threadIdx.x] *= a; }
extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }
"""
MANIFEST = """\
[[program]]
source = "kernels/scale.cu"
targets = ["cuda:sm_90"]
"""


def _words(command: str) -> list[str]:
    program, *words = shlex.split(command)
    assert program == "gpucache"
    return words


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the files that examples name."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "saxpy.cl").write_text(SAXPY, encoding="utf-8")
    (tmp_path / "kernels" / "scale.cu").write_text(SCALE, encoding="utf-8")
    (tmp_path / "include").mkdir()
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "0.jsonl").touch()
    (tmp_path / "app" / "blobs").mkdir(parents=True)
    (tmp_path / "gpucache.toml").write_text(MANIFEST, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_verb_has_examples() -> None:
    assert {name.partition(" ")[0] for name in EXAMPLES} == {*VERBS}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_is_understood(command: str, folder: Path) -> None:
    """The verb accepts every option and argument of an example, and the line fits a page."""
    own = _words(command.partition(" -- ")[0])
    context = gpucache.make_context("gpucache", own)
    while isinstance(group := context.command, click.Group):
        name, verb, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        assert name is not None and verb is not None
        context = verb.make_context(name, rest, parent=context)
    assert len(command) <= 69


@pytest.mark.slow
def test_examples_run(run: Run, folder: Path, pocl: str, nvrtc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples that need no other user's program have their expected exit codes, in order, verb by verb."""
    for name in ("HOME", "XDG_CACHE_HOME"):  # whose caches may have findings
        monkeypatch.setenv(name, str(folder))
    misses = {
        "gpucache inspect --why kernels/saxpy.cl --target opencl:pocl -D N=8",
        "gpucache warm --check kernels/ --device-profile node.json",  # it has devices besides PoCL's
    }
    (folder / "other.json").write_text("", encoding="utf-8")
    for verb in ("devices", "warm", "inspect", "verify", "evict"):
        for one in EXAMPLES[verb]:
            if " -- " in one.command or "--example" in one.command:
                continue
            if "other.json" in one.command:
                (folder / "other.json").write_bytes((folder / "node.json").read_bytes())
            answer = run(*_words(one.command), at=None if "--root" in one.command else folder / "root")
            assert answer.code == (3 if one.command in misses else 0), (one.command, answer)


def test_the_manifest_of_the_page_is_one(folder: Path) -> None:
    """The page's sample manifest can be read."""
    (sample,) = verbatims("manifest")["EXAMPLES"]
    (folder / "gpucache.toml").write_text(sample, encoding="utf-8")
    saxpy, scale = read_manifest(folder / "gpucache.toml")
    assert (len(saxpy.variants), len(scale.targets)) == (2, 3)


@pytest.mark.parametrize("verb", WORDS)
def test_every_word_of_an_answer_has_its_meaning(verb: str) -> None:
    """The texts document every result, verdict and finding."""
    _, kind = WORDS[verb]
    assert [word for word, meaning in words(kind) if meaning.endswith(".")] == list(kind)
