"""Completion as people meet it: words typed in real shells, with a tab, into a recorded command line."""

import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from gpucache.cli.group import COMPLETE
from gpucache.model import CacheKey, Entry, EntryDetail, EntryHead
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Event
from tests.patience import PATIENCE_S

SCRIPTS = Path(__file__).parents[2] / "completions"
ODD = "odd $(touch intruder), it's.cl"

Typed = Callable[[str], list[str]]


def key_of(program: str) -> CacheKey:
    return CacheKey(sha256(program.encode()).hexdigest())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two programs and the targets of a probe, and files and directories to name."""
    root = tmp_path / "cache"
    store = DirectoryStore(root, writable=True)
    for program in ("fft.cl", ODD):
        payload = program.encode()
        head = EntryHead(program, "cuda:sm_90", "cubin", 1, 1, sha256(payload).hexdigest())
        store.publish(Entry(key_of(program), head, EntryDetail(()), payload))
        store.history.record(program, Event(1, "built", str(key_of(program)), "cuda:sm_90"))
    (root / "v1" / "targets.json").write_text('["cuda:sm_90", "opencl:pocl/cpu", "opencl:intel/cpu"]')
    (tmp_path / "here" / "headers").mkdir(parents=True)
    (tmp_path / "here" / "warm-list.toml").touch(0o755)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("GPUCACHE_DIR", str(root))
    return root


@pytest.fixture(params=["bash", "zsh", "fish"])
def typed(request: pytest.FixtureRequest, cache: Path, tmp_path: Path) -> Typed:
    """The arguments that gpucache receives when a line, its tabs included, is typed into a shell and sent."""
    shell = str(request.param)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    folder = tmp_path / "bin"
    folder.mkdir()
    record = tmp_path / "received"
    program = folder / "gpucache"
    program.write_text(
        "#!/bin/sh\n"
        f'if [ -n "${COMPLETE}" ]; then exec "{sys.executable}" -m gpucache; fi\n'
        f'printf \'%s\\n\' "$@" > "{record}"\n'
    )
    program.chmod(0o755)
    (folder / "an-app-of-ours").symlink_to(program)
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}
    run = _in_fish if shell == "fish" else _in_terminal

    def type_in(line: str) -> list[str]:
        run(shell, line, environment)
        return record.read_text().splitlines()

    return type_in


def _in_terminal(shell: str, line: str, environment: dict[str, str]) -> None:
    """Type a line into an interactive shell on its own terminal, and end the shell."""
    if shell == "bash":
        start = ["bash", "--norc", "--noprofile", "-i"]
        setup = f"source '{SCRIPTS / 'gpucache.bash'}'"
    else:
        start = ["zsh", "-f", "-i"]
        setup = f"fpath=('{SCRIPTS}' $fpath); autoload -Uz compinit; compinit -u -D"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        start, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    os.write(ours, f"{setup}\n{line}\nexit\n".encode())
    with suppress(OSError):  # the shell has gone and its terminal with it
        while select.select([ours], [], [], PATIENCE_S)[0] and os.read(ours, 4096):
            pass
    process.kill()
    process.wait()
    os.close(ours)


def _in_fish(shell: str, line: str, environment: dict[str, str]) -> None:
    """Ask fish's own engine for the one completion, insert it as fish does, and run the line."""
    start, tab, rest = line.partition("\t")
    assert tab
    script = (
        "source $argv[1]; set -l found (complete -C $argv[2]); test (count $found) = 1; or exit 9; "
        "set -l word (string escape -- (string split -f 1 \\t -- $found[1])); "
        "set -l words (string split ' ' -- $argv[2]); "
        "eval (string join ' ' -- $words[1..-2] $word)$argv[3]"
    )
    arguments = [shell, "--no-config", "-c", script, str(SCRIPTS / "gpucache.fish"), start, rest]
    subprocess.run(arguments, env=environment, check=True, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("line", "received"),
    [
        ("gpucache insp\t", ["inspect"]),
        ("gpucache warm --exa\t", ["warm", "--example"]),
        ("gpucache warm --target cuda:sm_\t", ["warm", "--target", "cuda:sm_90"]),
        ("gpucache warm --target=opencl:po\t", ["warm", "--target=opencl:pocl/cpu"]),
        ("gpucache evict --program ff\t", ["evict", "--program", "fft.cl"]),
        ("gpucache verify od\t", ["verify", ODD]),
        (f"gpucache inspect {key_of('fft.cl').hex[:4]}\t", ["inspect", key_of("fft.cl").short]),
        ("gpucache warm --manifest=war\t", ["warm", "--manifest=warm-list.toml"]),
        ("gpucache warm -I head\t", ["warm", "-I", "headers"]),
        ("gpucache export lay\t", ["export", "layer"]),
        ("gpucache run -- an-app-of-\t", ["run", "--", "an-app-of-ours"]),
        ("gpucache run --learn -- ./warm-\t", ["run", "--learn", "--", "./warm-list.toml"]),
        (
            "gpucache warm -- an-app-of-ours --in warm-\t",
            ["warm", "--", "an-app-of-ours", "--in", "warm-list.toml"],
        ),
    ],
)
def test_a_tab_completes_what_the_cache_and_the_last_probe_know(
    typed: Typed, line: str, received: list[str]
) -> None:
    """Verbs, options, targets, programs, keys, files and commands are completed and arrive as one word."""
    words = [word.removesuffix("/") for word in typed(line)]  # zsh takes it away again, the others leave it
    assert words == received
    assert not Path("intruder").exists()


def test_completion_without_a_cache_answers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without entries or a probe a completion is empty, creates nothing and prints nothing."""
    root = tmp_path / "none"
    environment = os.environ | {
        "GPUCACHE_DIR": str(root),
        COMPLETE: "bash_complete",
        "COMP_LINE": "gpucache warm --target ",
    }
    command = [sys.executable, "-m", "gpucache"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (answer.stdout.strip(), answer.stderr) == ("", "")
    assert not root.exists()


def test_the_root_of_the_command_line_is_the_one_completed_from(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--root`` earlier on the line decides which programs are offered."""
    monkeypatch.delenv("GPUCACHE_DIR")
    environment = os.environ | {
        COMPLETE: "zsh_complete",
        "COMP_LINE": f"gpucache --root {cache} inspect ff",
    }
    command = [sys.executable, "-m", "gpucache"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["plain", "fft.cl"]
