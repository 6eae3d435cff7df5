"""Whatever is asked for, an error is one sentence with its exit code: no traceback, no partial entry."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from gpucache.cli.group import VERBS
from gpucache.cli.parameters import PathName

if TYPE_CHECKING:
    from tests.cli.conftest import Answer, Run

Write = Callable[..., Path]
Files = Callable[[Path], list[Path]]
SOURCES = {
    "k.cl": "__kernel void k(__global float *a) { a[0] = 1; }\n",
    "v.cu": 'extern "C" __global__ void v(float *a) { a[0] = 1; }\n',
    "text.txt": "nothing to compile\n",
    "empty/readme.md": "",
    "unknown.toml": '[[program]]\nsource = "k.cl"\n\nblock = 3\n',
    "wrong.toml": '[[program]]\nsource = "k.cl"\nlocal_sizes = [0]\n',
    "broken.toml": "[[program\n",
    "none.toml": "",
    "gone.toml": '[[program]]\nsource = "gone.cl"\n',
}


@pytest.fixture
def here(write: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources above, in the current directory."""
    folder = write(SOURCES)
    monkeypatch.chdir(folder)
    return folder


# Arguments, and words that the sentence must hold: the thing, and the remedy.
WRONG = {
    "no program": ("warm", "no program is named", "--manifest"),
    "missing file": ("warm gone.cl", "'gone.cl'", "check its path"),
    "missing among others": ("warm k.cl gone.cl --target cuda:sm_90", "'gone.cl'", "check its path"),
    "folder without sources": ("warm empty", "'empty'", ".cu files"),
    "no source": ("warm text.txt", "text.txt", ".cl"),
    "missing include folder": ("warm k.cl -I gone", "gone", "--help"),
    "malformed target": ("warm v.cu --target sm_90", "'sm_90'", "BACKEND:NAME"),
    "unknown backend": ("warm v.cu --target metal:m1", "'metal:m1'", "metal"),
    "unknown device": ("warm k.cl --target opencl:none", "'opencl:none'", "the targets here are"),
    "architecture no compiler has": ("warm v.cu --target cuda:sm_20", "'cuda:sm_20'", "cuda:sm_90"),
    "unknown field": (
        "warm --manifest unknown.toml",
        "unknown.toml, line 4, field 'block'",
        "the fields are",
    ),
    "wrong value": (
        "warm --manifest wrong.toml",
        "wrong.toml, line 3, field 'local_sizes'",
        "[[64], [16, 16]]",
    ),
    "no TOML": ("warm --manifest broken.toml", "broken.toml", "TOML"),
    "empty manifest": ("warm --manifest none.toml", "none.toml names no program", "[[program]]"),
    "source of a manifest": ("warm --manifest gone.toml", "gone.cl", "check its path"),
    "missing manifest": ("warm --manifest no.toml", "no manifest no.toml", "--manifest FILE"),
    "sources and manifest": ("warm k.cl --manifest unknown.toml", "do not go together", "give one"),
    "bad local size": ("warm k.cl --local-size 0", "'0'", "16x16"),
    "bad jobs": ("warm k.cl --jobs 0", "--jobs", "1<=x"),
    "bad timeout": ("warm k.cl --timeout 0", "--timeout", "--help"),
    "a command after --": ("verify -- make all", "'--'", "warm, bench and export"),
    "words before and after --": ("bench k.cl -- make all", "'--'", "leave sources"),
    "unknown verb": ("prime k.cl", "'prime'", "--help"),
    "unknown option": ("warm k.cl --fast", "--fast", "gpucache warm --help"),
    "unknown program": ("inspect none.cl", "'none.cl'", "gpucache inspect --list"),
    "unknown key": ("inspect 0123456789ab", "'0123456789ab'", "gpucache inspect --list"),
    "unknown entry to verify": ("verify none.cl", "'none.cl'", "gpucache inspect --list"),
    "unknown cache": ("inspect --cache none", "'none'", "gpucache"),
    "nothing asked of evict": ("evict", "--max-size", "GPUCACHE_MAX_SIZE"),
    "all and a filter": ("evict --all --superseded", "--all stands alone", "leave the other"),
    "bad size": ("evict --max-size lots", "'lots' is not a size", "512M"),
    "no value": ("evict --max-size", "'--max-size' requires an argument", "see 'gpucache evict --help'"),
    "bad age": ("evict --older-than yesterday", "'yesterday' is not an age", "30d"),
    "bench of nothing": ("bench", "no program is named", "--example"),
    "bad runs": ("bench k.cl --runs 0", "--runs", "--help"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_is_one_sentence(run: Run, here: Path, root: Path, nvrtc: str, case: str) -> None:
    """The command ends with one line that names the thing and the remedy, and leaves no cache behind."""
    arguments, *parts = WRONG[case]
    answer = run(*arguments.split())
    assert answer.code == 2
    assert_sentence(answer, parts)
    assert answer.out == ""
    assert not list(root.rglob("*"))


@pytest.mark.parametrize("case", WRONG)
def test_an_error_is_one_document_with_json(run: Run, here: Path, nvrtc: str, case: str) -> None:
    """With --json stdout carries one document with the same sentence and exit code."""
    arguments, *_ = WRONG[case]
    answer = run("--json", *arguments.split())
    document = answer.document
    assert (answer.code, document["error"]["exit_code"]) == (2, 2)
    assert answer.err == f"gpucache: {document['error']['message']}\n"
    verb = arguments.split()[0]
    assert document["command"] == ("" if verb == "prime" else verb)
    assert (document["outcomes"], document["summary"]) == ([], {})


EMPTY = (
    "warm|", "warm|-I||k.cl", "warm|--manifest|", "warm|--recording|", "warm|--into||--|true", "bench|",
    "warm|--check|--device-profile||k.cl", "bench|--export||k.cl", "inspect|", "inspect|--cache|",
    "inspect|--cache|pocl:", "inspect|--extract||k.cl", "inspect|--recording|", "verify|--cache|",
    "evict|--all|--cache|", "devices|--save|", "devices|--compare|||", "record|-o||--|true",
    "run|--report||--|true", "export|layer||--|true", "export|layer|out|--at||--|true", "--root||devices",
)  # fmt: skip


@pytest.mark.parametrize("line", EMPTY)
def test_an_empty_name_is_not_the_current_folder(run: Run, here: Path, root: Path, line: str) -> None:
    """It comes from an unset variable of a script, and nothing is read, written or run for it."""
    before = sorted(here.rglob("*"))
    answer = run(*line.split("|"))
    assert answer.code == 2 and answer.out == ""
    assert_sentence(answer, ["empty" if not line.endswith("pocl:") else "'pocl:'"])
    assert sorted(here.rglob("*")) == before and not root.exists()


def test_every_path_of_the_command_line_refuses_to_be_empty() -> None:
    """No argument or option takes Click's own type, which does not."""
    verbs = [getattr(import_module(f"gpucache.cli.{name}"), name) for name in VERBS]
    paths = [one.type for verb in verbs for one in verb.params if isinstance(one.type, click.Path)]
    assert len(paths) > 10 and all(isinstance(one, PathName) for one in paths)


def assert_sentence(answer: Answer, parts: list[str]) -> None:
    assert answer.err.startswith("gpucache: ")
    assert answer.err.count("\n") == 1 and answer.err.endswith("\n")
    for part in parts:
        assert part in answer.err
    assert "Traceback" not in answer.err


# Options or contents that fail one item, with what its reason or its compiler's log must hold.
FAILING = {
    "missing header": ('#include "nowhere.h"\n', [], "nowhere.h"),
    "option with side effects": ("", ["--option=--time=/tmp/times.csv"], "leave it out"),
    "option the compiler does not know": ("", ["--option=--no-such-option"], "no-such-option"),
    "time of the build": ("__device__ const char *when = __TIME__;\n", [], "__TIME__"),
}


@pytest.mark.parametrize("case", FAILING)
def test_what_fails_one_item_is_exit_3(
    run: Run, write: Write, root: Path, nvrtc: str, entries: Files, case: str
) -> None:
    """An item that cannot be compiled or kept fails with its reason, publishes nothing, and is exit 3."""
    beginning, options, words = FAILING[case]
    sources = write({"v.cu": beginning + SOURCES["v.cu"]})
    answer = run("--json", "warm", sources, "--target", nvrtc, *options)
    (row,) = answer.document["outcomes"]
    assert (answer.code, row["result"]) == (3, "failed")
    assert words in row["reason"] + row["log"]
    assert entries(root) == []
    text = run("warm", sources, "--target", nvrtc, *options)
    assert words in text.out and "Traceback" not in text.out + text.err


def _file(root: Path) -> None:
    root.write_text("not a folder", encoding="utf-8")


def _open_to_all(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)


def _of_somebody(root: Path) -> None:
    root.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(root, 12345, 12345)


@pytest.mark.parametrize("verb", ["warm v.cu --target cuda:sm_90", "inspect", "verify", "evict --all --yes"])
@pytest.mark.parametrize(
    ("make", "words"), [(_file, "not a directory"), (_open_to_all, "chmod go-w"), (_of_somebody, "uid 12345")]
)
def test_a_root_that_cannot_be_used_is_exit_5(
    run: Run, here: Path, root: Path, nvrtc: str, make: Callable[[Path], None], words: str, verb: str
) -> None:
    """A root that is a file, open to others or somebody else's is refused by every verb and left alone."""
    make(root)
    answer = run(*verb.split())
    assert answer.code == 5
    assert_sentence(answer, [str(root), words, "GPUCACHE_DIR"])
    assert not list(root.rglob("*"))


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe there has no reader to lose")
def test_a_root_that_is_a_file_is_told_where_the_reader_has_gone(root: Path) -> None:
    """The overview of the other caches may be cut by head; the sentence and the exit code stay."""
    root.touch()
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "gpucache", "--root", str(root), "inspect"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.returncode == 5 and f"the cache root {root} is not a directory" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_is_named(run: Run, here: Path) -> None:
    """A folder without permission ends the command, rather than being left out in silence."""
    locked = here / "locked"
    locked.mkdir(mode=0o000)
    answer = run("warm", here, "--target", "cuda:sm_90")
    locked.chmod(0o700)
    assert answer.code == 2
    assert_sentence(answer, [str(locked), "permissions"])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("GPUCACHE_MAX_SIZE", "lots", "512M"),
        ("GPUCACHE_READ_ONLY", "perhaps", "1 or 0"),
        ("GPUCACHE_MEMORY_BYTES", "-1", "512M"),
    ],
)
def test_a_bad_variable_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    """A variable that cannot be meant is exit 2 and named with what it may hold."""
    monkeypatch.setenv(name, value)
    answer = run("inspect")
    assert answer.code == 2
    assert_sentence(answer, [name, value, words])


def test_no_home_is_exit_5(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no place for a cache can be told, the remedy is the variable that names one."""
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_, **__: "~/.cache/gpucache")
    answer = run("inspect", at=None)
    assert answer.code == 5
    assert_sentence(answer, ["GPUCACHE_DIR"])


def test_no_arguments_show_the_help(run: Run) -> None:
    """Without arguments the help goes to stderr as it is, and the exit code is that of usage."""
    answer = run(at=None)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Usage: gpucache")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of gpucache's own."""

    def break_(*_: object) -> None:
        raise RuntimeError("wires crossed")

    monkeypatch.setattr("gpucache.engine.inspect.state", break_)


def test_a_defect_is_exit_1_and_asks_for_a_report(run: Run, broken: None) -> None:
    """An unexpected exception is one sentence, then what to report; no traceback."""
    answer = run("--json", "inspect")
    first, second = answer.err.splitlines()
    assert (answer.code, first) == (1, "gpucache: unexpected RuntimeError: wires crossed")
    assert second.startswith("This is a defect of gpucache.") and "GPUCACHE_LOG=debug" in second
    assert answer.document["error"]["exit_code"] == 1


def test_a_defect_shows_its_traceback_where_it_was_asked_for(
    run: Run, broken: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With GPUCACHE_LOG=debug the traceback of a defect is printed."""
    monkeypatch.setenv("GPUCACHE_LOG", "debug")
    answer = run("inspect")
    assert answer.code == 1
    assert "Traceback" in answer.err and "wires crossed" in answer.err


@pytest.mark.parametrize("verb", ["inspect", "devices", "evict"])
def test_an_empty_root_is_refused(run: Run, verb: str) -> None:
    """An empty --root, as an unset variable of a script leaves it, is not the current folder."""
    answer = run("--root", "", verb, "--json", at=None)
    assert answer.code == 2 and "--root is empty" in answer.document["error"]["message"]


def test_no_verb_is_one_document_too(run: Run) -> None:
    """With --json what lacks a verb is answered by one document that says so."""
    answer = run("--json")
    assert answer.code == 2 and answer.document["error"]["exit_code"] == 2
