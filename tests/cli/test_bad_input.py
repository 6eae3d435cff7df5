"""Every error is one sentence with its exit code: no traceback, no partial entry."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from gpucache.cli.group import VERBS
from gpucache.cli.parameters import PathName
from tests.children import run_text
from tests.contracts.examples import EXAMPLES

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
    folder = write(SOURCES)
    monkeypatch.chdir(folder)
    return folder


# The arguments, and words of their one sentence: the thing, and the remedy.
REFUSED: dict[str, tuple[str, ...]] = {
    "warm": ("no program is named", "--manifest"),
    "warm gone.cl": ("'gone.cl'", "check its path"),
    "warm k.cl gone.cl --target cuda:sm_90": ("'gone.cl'", "check its path"),
    "warm empty": ("'empty'", ".spv files"),
    "warm text.txt": ("text.txt", ".cl"),
    "warm k.cl -I gone": ("gone", "--help"),
    "warm v.cu --target sm_90": ("'sm_90'", "BACKEND:NAME"),
    "warm v.cu --target metal:m1": ("'metal:m1'", "metal"),
    "warm k.cl --target opencl:none": ("'opencl:none'", "its targets are"),
    "warm v.cu --target cuda:sm_20": ("'cuda:sm_20'", "cuda:sm_90"),
    "warm --manifest unknown.toml": ("unknown.toml, line 4, field 'block'", "the fields are"),
    "warm --manifest wrong.toml": ("wrong.toml, line 3, field 'local_sizes'", "[[64], [16, 16]]"),
    "warm --manifest broken.toml": ("broken.toml", "TOML"),
    "warm --manifest none.toml": ("none.toml names no program", "[[program]]"),
    "warm --manifest gone.toml": ("gone.cl", "check its path"),
    "warm --manifest no.toml": ("no manifest no.toml", "--manifest FILE"),
    "warm k.cl --manifest unknown.toml": ("do not go together", "give one"),
    "warm k.cl --local-size 0": ("'0'", "16x16"),
    "warm k.cl --jobs 0": ("--jobs", "from 1 to 1024"),
    "warm k.cl --timeout 0": ("--timeout", "--help"),
    "warm k.cl --timeout nan": ("--timeout", "at least 0.1"),
    "warm k.cl --name-expression k<float>": ("--name-expression",),
    "warm k.cl --check --shared": ("leave --shared and --retry out",),
    "warm k.cl --check --retry": ("leave --shared and --retry out",),
    "warm k.cl --into here": ("after '--'",),
    "warm --": ("as in 'gpucache warm -- ./app'",),
    "warm --into here -- true": ("leave --root out",),
    "warm -j 3 -- true": ("is warmed alone",),
    "warm --shared -- true": ("is warmed alone",),
    "warm --check -- true": ("is warmed alone",),
    "warm --retry -- true": ("is warmed alone",),
    "warm -D N=1 -- true": ("is warmed alone",),
    "warm --misses --into here -- true": ("is warmed alone",),
    "warm --misses k.cl": ("leave sources and build options out",),
    "warm --misses -D N=4": ("leave sources and build options out",),
    "warm --misses --example": ("leave sources and build options out",),
    "warm --misses --check --device-profile far.json": ("leave --device-profile out",),
    "warm --recording none a.cl": ("--recording", "leave sources and build options out"),
    "warm --recording none --misses": ("the recording 'none'",),
    "warm --recording none -D N=1": ("--recording",),
    "warm --recording none --local-size 8": ("--recording",),
    "warm --recording none --example": ("--recording",),
    "warm --recording empty": ("gpucache record -o",),
    "verify -- make all": ("'--'", "warm, bench and export"),
    "verify none.cl": ("'none.cl'", "gpucache inspect --list"),
    "verify --cache sycl:nonesuch": ("nonesuch",),
    "prime k.cl": ("'prime'", "--help"),
    "warm k.cl --fast": ("--fast", "gpucache warm --help"),
    "inspect none.cl": ("'none.cl'", "gpucache inspect --list"),
    "inspect 0123456789ab": ("'0123456789ab'", "gpucache inspect --list"),
    "inspect --cache none": ("'none'", "gpucache-caches"),
    "inspect --cache empty": ("has no cache",),
    "inspect --cache futhark": ("--cache futhark:PLACE",),
    "inspect --cache rocfft": ("in memory", "ROCFFT_RTC_CACHE_PATH"),
    "inspect --quiet --verbose": ("--quiet", "--verbose"),
    "--verbose inspect -q": ("--quiet", "--verbose"),
    "inspect --why --list x.cl": ("--why and --list",),
    "inspect --misses --extract x.bin": ("--misses and --extract",),
    "inspect --misses x.cl": ("--misses",),
    "inspect --extract x.bin": ("--extract needs one entry",),
    "inspect --why": ("--why needs a subject",),
    "inspect --why no-such.cl": ("no source 'no-such.cl', and no entry is of a program, target or key",),
    "inspect --why twice.cl -D A": ("there is no file 'twice.cl'",),
    "inspect --why 0000 ffff": ("0 entries have a key that begins with 0000",),
    "inspect --why x.cl --manifest none.toml": ("do not go together",),
    "inspect twice.cl -D A": ("add --why",),
    "inspect twice.cl --option=-O3": ("add --why",),
    "inspect twice.cl --local-size 64": ("add --why",),
    "inspect --device-profile x.json": ("add --why",),
    "inspect --want source=x": ("add --why",),
    "inspect --why --want source": ("FIELD=VALUE",),
    "inspect --why --want =x": ("FIELD=VALUE",),
    "inspect --why --want source=@nowhere": ("nowhere cannot be read",),
    "inspect --why --want source=@/dev/zero": ("regular file",),
    "inspect --since 1h": ("add --misses",),
    "inspect --recording none saxpy": ("--recording",),
    "inspect --recording none --list": ("--recording",),
    "inspect --recording none --cache pocl": ("--recording",),
    "inspect --recording none --misses": ("--recording",),
    "inspect --recording none --why a.cl": ("--recording",),
    "inspect --watch saxpy.cl": ("--watch is for all programs", "leave WHAT and --target out"),
    "inspect --watch --list": ("--list and --watch ask for different outputs",),
    "inspect --watch --misses": ("--misses and --watch ask for different outputs",),
    "inspect --plot growth.gif": ("--plot writes .png, .svg or .pdf", "growth.gif"),
    "inspect --plot growth.svg --cache pocl": ("--plot is for gpucache's own cache",),
    "inspect --plot growth.svg saxpy.cl": ("--plot is for all programs",),
    "evict": ("--max-size", "GPUCACHE_MAX_SIZE"),
    "evict --all --superseded": ("--all goes with no other filter", "leave the other"),
    "evict --all --max-size 1G": ("--all goes with no other filter", "leave the other"),
    "evict --max-size lots": ("'lots' is not a size", "512M"),
    "evict --max-size": ("'--max-size' requires an argument", "see 'gpucache evict --help'"),
    "evict --older-than yesterday": ("'yesterday' is not an age", "30d"),
    "evict --unlike gfx90a": ("FIELD=VALUE",),
    "evict --program nosuch": ("no entry is of the program 'nosuch'",),
    "evict --target nosuch": ("no entry is of the target 'nosuch'",),
    "devices --save x.json --compare a.json b.json": ("--save", "--compare"),
    "bench": ("no program is named", "--example"),
    "bench --": ("as in 'gpucache bench -- ./app'",),
    "bench k.cl --runs 0": ("--runs", "--help"),
    "bench k.cl -- make all": ("'--'", "leave sources"),
    "bench -- true": ("leave --root out",),
    "bench v.cu --same-output": ("are for a command",),
    "bench v.cu --as-is": ("are for a command",),
    "bench v.cu --prepare x": ("are for a command",),
    "bench v.cu -- ./app": ("timed alone",),
    "bench --target cuda:sm_90 -- ./app": ("timed alone",),
    "bench --against driver -- ./app": ("timed alone",),
    "bench v.cu --fail-below 0": ("--fail-below",),
    "bench v.cu --budget 0": ("--budget",),
    "bench v.cu --against futhark": ("--against",),
    "bench --fail-below inf -- true": ("above 0",),
    "bench --budget nan -- true": ("above 0",),
    "bench --checks k.cl": ("leave all but --target",),
    "bench --checks --target cuda:sm_90": ("--checks times OpenCL devices",),
    "bench v.cu --export figures.txt": (".json, .md, .png, .svg or .pdf", "figures.txt"),
    "bench v.cu --export figures": (".json, .md, .png, .svg or .pdf", "figures"),
    "bench v.cu --export missing/figures.json": ("cannot be written", "missing/figures.json"),
    "run ls -la": ("write '--' before the command, as in 'gpucache run -- ls -la'",),
    "run --learn ls": ("write '--' before the command, as in 'gpucache run -- ls'",),
    "run ls -- true": ("only options may come before '--'; leave 'ls' out",),
    "record -o new ls": ("as in 'gpucache record -o DIR -- ls'",),
    "record -o new --": ("as in 'gpucache record -o DIR -- ./app'",),
    "record -o new": ("no command is named",),
    "record -- true": ("-o",),
    "export layer new --": ("as in 'gpucache export layer DIR -- ./app'",),
    "export layer new": ("no command is named",),
    "export layer new a.cu": ("as in 'gpucache export layer DIR -- a.cu'",),
    "export layer new --keep-times -- true": ("--keep-times", "gpucache export layer --help"),
    "export rocfft new a.db --at /a": ("--at", "gpucache export rocfft --help"),
    "export rocfft new a.db -- true": ("takes no words after '--'",),
    "push": ("URL",),
    "push ftp://host/store": ("not a store that gpucache knows", "s3://"),
    "push s3:/bucket": ("not a store that gpucache knows", "s3://"),
    "push https://host/store": ("host/store can only be read", "push to the place it serves"),
    "push store nosuch": ("no entry is of a program, target or key 'nosuch'",),
    "push store --key k.cl": ("k.cl is not a secret key",),
    "push store --cache nosuch": ("there is no cache 'nosuch'",),
    "push store --cache s3://bucket/x": ("s3://bucket/x is a store", "caches of this machine"),
    "pull store --cache s3://bucket/x": ("s3://bucket/x is a store", "caches of this machine"),
    "pull": ("URL",),
    "pull store --timeout 0": ("'0' is not a number of at least 0.1",),
    "pull store --to new": ("leave --root out",),
    "pull store --device-profile k.cl": ("k.cl is not a device profile",),
    "pull store --cache k.cl": ("k.cl has no cache that gpucache knows", "sycl:"),
    "pull store --cache numba": ("numba has no own place on this machine",),
    "key": ("FILE",),
    "key empty": ("is a directory",),
    "key k.cl": ("k.cl exists", "--public"),
    "key k.cl --public": ("k.cl is not a secret key", "'gpucache key FILE'"),
    "key none --public": ("none cannot be read", "'gpucache key FILE'"),
    "key none/new": ("none/new cannot be written", "name another file"),
    "export rocfft new": ("SOURCE", "gpucache export rocfft --help"),
    "warm k.cl -I 'no\nne'": ("there is no directory no\ufffdne",),
    "export rocfft empty a.db": ("is a directory",),
    "export futhark new v.cu": ("--target",),
    "export futhark new v.cu --target opencl:pocl": ("opencl:pocl",),
    "export futhark new v.cu --target cuda:sm_90 --keep-times": ("--keep-times",),
    "export futhark new v.cu --log nowhere": ("nowhere cannot be read",),
}
# An empty name comes from an unset variable of a script, and is not the current directory.
EMPTY = (
    "warm ''", "warm -I '' k.cl", "warm --manifest ''", "warm --recording ''", "warm --into '' -- true",
    "warm --check --device-profile '' k.cl", "bench ''", "bench --export '' k.cl", "inspect ''",
    "inspect --cache ''", "inspect --extract '' k.cl", "inspect --recording ''", "verify --cache ''",
    "evict --all --cache ''", "devices --save ''", "devices --compare '' ''", "record -o '' -- true",
    "run --report '' -- true", "export layer '' -- true", "export layer out --at '' -- true",
    "--root '' devices", "key ''", "push ''", "pull ''", "pull store --to ''", "push store --key ''",
    "pull store --cache ''",
)  # fmt: skip
REFUSED |= dict.fromkeys(EMPTY, ("empty",)) | {"inspect --cache pocl:": ("'pocl:'",)}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_meant_is_one_sentence(
    run: Run, here: Path, root: Path, nvrtc: str, line: str
) -> None:
    """It names the thing and the remedy, with --json as a document; nothing is read, run or written."""
    before = sorted(here.rglob("*"))
    answer = run("--json", *shlex.split(line))
    document = answer.document
    assert (answer.code, document["error"]["exit_code"]) == (2, 2)
    assert answer.err == f"gpucache: {document['error']['message']}\n"
    verb = next((word for word in shlex.split(line) if word in VERBS), "")
    assert (document["command"], document["outcomes"], document["summary"]) == (verb, [], {})
    assert_sentence(answer, REFUSED[line])
    assert sorted(here.rglob("*")) == before and not root.exists()


@pytest.mark.parametrize("line", ["warm", "evict --max-size", "prime k.cl"])
def test_without_json_stdout_is_empty(run: Run, here: Path, line: str) -> None:
    """Only the sentence is printed."""
    answer = run(*shlex.split(line))
    assert (answer.code, answer.out) == (2, "")
    assert_sentence(answer, ())


def test_every_path_of_the_command_line_refuses_to_be_empty() -> None:
    """No argument or option takes Click's own type, which does not."""
    verbs = [getattr(import_module(f"gpucache.cli.{name}"), name) for name in VERBS]
    paths = [one.type for verb in verbs for one in verb.params if isinstance(one.type, click.Path)]
    assert len(paths) > 10 and all(isinstance(one, PathName) for one in paths)


def assert_sentence(answer: Answer, parts: Sequence[str]) -> None:
    assert answer.err.startswith("gpucache: ")
    assert answer.err.count("\n") == 1 and answer.err.endswith("\n")
    for part in parts:
        assert part in answer.err
    assert "Traceback" not in answer.err


# Options or contents that fail one item, with words of its reason or its compiler's log.
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
    root.write_text("not a directory", encoding="utf-8")


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
    """A root that is a file, open to others or another user's is refused by every verb and left alone."""
    make(root)
    answer = run(*verb.split())
    assert answer.code == 5
    assert_sentence(answer, [str(root), words, "--root"])
    assert not list(root.rglob("*"))


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe there has no reader to lose")
@pytest.mark.parametrize("variables", [{}, {"PYTHONUNBUFFERED": "1"}, {"FORCE_COLOR": "1"}], ids=str)
def test_a_root_that_is_a_file_is_told_where_the_reader_has_gone(
    root: Path, tmp_path: Path, variables: Mapping[str, str]
) -> None:
    """head may cut the overview of the other caches; the sentence and the exit code stay."""
    root.touch()
    read, write = os.pipe()
    os.close(read)
    other = {"CUPY_CACHE_DIR": str(EXAMPLES["cupy"].make(tmp_path / "other"))}
    command = [sys.executable, "-m", "gpucache", "--root", str(root), "inspect"]
    environ = {**os.environ, **other, **variables}
    done = run_text(command, stdout=write, stderr=subprocess.PIPE, capture_output=False, env=environ)
    os.close(write)
    told = f"gpucache: the cache root {root} is not a directory"
    assert done.returncode == 5 and done.stderr.startswith(told) and done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_is_named(run: Run, here: Path) -> None:
    """A directory without permission ends the command, instead of being silently left out."""
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
    """An invalid variable is exit 2, and the message lists the valid values."""
    monkeypatch.setenv(name, value)
    answer = run("inspect")
    assert answer.code == 2
    assert_sentence(answer, [name, value, words])


def test_no_home_is_exit_5(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a usable place for a cache, the remedy is the variable that names one."""
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
    def break_(*_: object) -> None:
        raise RuntimeError("wires crossed")

    monkeypatch.setattr("gpucache.engine.inspect.state", break_)


def test_a_defect_is_exit_1_and_asks_for_a_report(run: Run, broken: None) -> None:
    """An unexpected exception is one sentence and a request for a report; no traceback."""
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
    """An empty --root, as from an unset variable of a script, is not the current directory."""
    answer = run("--root", "", verb, "--json", at=None)
    assert answer.code == 2 and "--root is empty" in answer.document["error"]["message"]


def test_no_verb_is_one_document_too(run: Run) -> None:
    """With --json a missing verb is reported in one document."""
    answer = run("--json")
    assert answer.code == 2 and answer.document["error"]["exit_code"] == 2
