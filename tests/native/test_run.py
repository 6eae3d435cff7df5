"""The program in C that begins ``gpucache run``: what needs no server it does alone, all else is Python's."""

import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from gpucache.answers.run_lines import command_name, counted, unbuilt
from gpucache.native import build
from gpucache.settings import read_settings
from gpucache.store.bounded_log import LOG_CAP
from gpucache.store.directory import DirectoryStore
from tests.children import run_text
from tests.patience import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")
_PYTHON = ("sh", "-c", 'echo "Python $*"', "python")
"""Stands for the words that start gpucache in Python, and shows its arguments."""
_HIT = "hit {} {} {}\tkey\ttarget\tprogram"
_NOTES = 'cat "$1" >> "${GPUCACHE_RUN_SOCKET%/*}/notes"; exit "$2"'
_ASKS = """
import contextlib, os, socket, sys
asking = socket.socket(socket.AF_UNIX)
asking.connect(os.environ["GPUCACHE_RUN_SOCKET"])
with contextlib.suppress(ConnectionResetError):
    asking.recv(1)
sys.exit(4)
"""
"""A command that waits for an answer, and goes on if none can come."""
_WITHOUT_PROC = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with places of its own, and no variable of ours."""
    (tmp_path / "tmp").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUCACHE_")}
    return {**kept, "GPUCACHE_DIR": str(tmp_path / "root"), "TMPDIR": str(tmp_path / "tmp")}


@pytest.fixture
def start(libraries: Path, environ: dict[str, str]) -> Start:
    """Run a command by the program, with the arguments of gpucache before it."""

    def call(
        *arguments: object, outer: Sequence[str] = (), **more: str
    ) -> "subprocess.CompletedProcess[str]":
        program = (libraries / build.file_name(build.STARTER), f"--by={len(_PYTHON)}", *_PYTHON)
        return run_text([*outer, *program, *arguments], env={**environ, **more})

    return call


@pytest.fixture
def noted(start: Start, tmp_path: Path) -> Start:
    """Run a command whose libraries note some lines; it ends with a code."""

    def call(
        *lines: str, code: int = 0, quiet: bool = False, name: str = "sh", outer: Sequence[str] = ()
    ) -> object:
        (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines))
        shell = tmp_path / name
        shell.symlink_to("/bin/sh")
        options = ["-q"] if quiet else []
        notes = ("run", *options, "--", shell, "-c", _NOTES, "sh", tmp_path / "lines", code)
        return start(*notes, outer=outer)

    return call  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("begun", "plain_ns", "late_ns"),
    [([1_000_000_000], 87_000_000, 0), ([2_000, 1_000, 9_000_000], 1, 0), ([5, 6], 0, 61_234_000_000)],
    ids=["one", "slower", "late"],
)
def test_hits_are_summed_up_and_counted(
    noted: Start, tmp_path: Path, begun: list[int], plain_ns: int, late_ns: int
) -> None:
    """In the words of Python, and in the journal of a root that is made as the store makes it."""
    took = 8_000_000
    word = _HIT.replace("hit", "late") if late_ns else _HIT
    done = noted("loaded", *(word.format(when, took, plain_ns or late_ns) for when in begun), code=3)
    times = sorted((when, when + took) for when in begun)
    build_ns = times[-1][1] - times[0][0] - sum(max(0, b[0] - a[1]) for a, b in pairwise(times))
    count = len(begun)
    told = "; ".join(counted(count, count, build_ns, count * (plain_ns or late_ns), count * late_ns))
    assert (done.returncode, done.stdout, done.stderr) == (3, "", f"gpucache: {told}\n")
    store = DirectoryStore(tmp_path / "root", writable=True)
    [record] = store.journal_tail(2)
    assert (record["kind"], record["command"], record["hits"], record["misses"]) == (
        "process",
        "sh",
        count,
        0,
    )
    assert record["saved_ns"] == count * (plain_ns or late_ns)
    assert store.is_marked()
    assert {path.stat().st_mode & 0o077 for path in (store.root, *store.root.rglob("*"))} == {0}
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("lines", [[], ["loaded"], ["loaded", "binary"], ["loaded", "binary", "binary"]])
@pytest.mark.parametrize("code", [0, 5, 127])
def test_a_command_without_builds_is_told_as_python_tells_it(
    noted: Start, lines: list[str], code: int
) -> None:
    done = noted(*lines, code=code)
    told = unbuilt(code, loaded=bool(lines), binaries=lines.count("binary"))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"gpucache: {told}\n")


def test_a_quiet_run_says_nothing(noted: Start) -> None:
    done = noted(_HIT.format(1, 2, 3), code=5, quiet=True)
    assert (done.returncode, done.stdout, done.stderr) == (5, "", "")


def test_a_line_is_broken_between_words_at_the_width_of_a_terminal(
    libraries: Path, environ: dict[str, str]
) -> None:
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    program = [str(libraries / build.file_name(build.STARTER)), "--by=1", "false", "run", "--", "true"]
    assert subprocess.run(program, env=environ, stderr=inner, check=False).returncode == 0
    os.close(inner)
    told = os.read(outer, 4096).decode().replace("\r\n", "\n")
    os.close(outer)
    assert told.replace("\n", " ").strip() == f"gpucache: {unbuilt(0, loaded=False)}"
    assert 30 < max(map(len, told.split("\n"))) < 41


@pytest.mark.parametrize(
    "lines",
    [["filtered"], ["launched 0123"], ["hit of another kind"], [_HIT.format(1, 2, 3), "x"]],
)
def test_an_end_that_is_more_than_hits_is_left_to_python(noted: Start, lines: list[str]) -> None:
    """It adopts the command, with the same arguments."""
    done = noted(*lines)
    assert done.stdout.startswith("Python run -- ")


def test_a_command_that_a_signal_ends_is_left_to_python(start: Start) -> None:
    assert start("run", "--", "sh", "-c", "kill -9 $$").stdout.startswith("Python run -- sh -c")


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "--json"],
        ["run"],
        ["run", "--"],
        ["run", "true"],
        ["run", "--learn", "--", "true"],
        ["run", "--", "no-such-command"],
    ],
    ids=" ".join,
)
def test_other_arguments_are_left_to_python(start: Start, arguments: list[str]) -> None:
    done = start(*arguments)
    assert (done.stdout, done.stderr) == (f"Python {' '.join(arguments)}\n", "")


@pytest.mark.parametrize(
    "variables",
    [
        {"GPUCACHE_LOG": "info"},
        {"GPUCACHE_REQUIRE": "1"},
        {"GPUCACHE_RUN_SOCKET": "/of/an/outer/run"},
        {"GPUCACHE_DIR": "/with:colon"},
        {"GPUCACHE_DIR": "", "XDG_CACHE_HOME": "relative"},
        {"GPUCACHE_DIR": f"/{'x' * 8190}", "GPUCACHE_SYSTEM_DIRS": "relative"},
        {"PYTHONHOME": "/no/python"},
    ],
    ids=["log", "require", "outer", "colon", "relative", "long", "home"],
)
def test_variables_that_need_settings_are_left_to_python(start: Start, variables: Mapping[str, str]) -> None:
    assert start("run", "--", "true", **variables).stdout == "Python run -- true\n"


@pytest.mark.parametrize(
    "variables",
    [
        {"GPUCACHE_DIR": "some/place"},
        {"GPUCACHE_DIR": "", "XDG_CACHE_HOME": "/caches"},
        {"GPUCACHE_DIR": ""},
        {"GPUCACHE_DIR": "/a", "GPUCACHE_SYSTEM_DIRS": ":some/image::/c"},
    ],
    ids=str,
)
def test_the_roots_are_those_of_the_settings(
    start: Start, monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]
) -> None:
    """Though no settings are read."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = read_settings(os.environ)
    assert settings.root is not None
    done = start("run", "--", "sh", "-c", 'echo "$GPUCACHE_RUN_ROOTS"', **variables)
    assert done.stdout == f"{':'.join(map(str, (settings.root, *settings.system_dirs)))}\n"


def test_a_name_that_a_journal_would_have_to_escape_is_left_to_python(noted: Start) -> None:
    assert noted(_HIT.format(1, 2, 3), name='a"b').stdout.startswith("Python run")


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir], ids=["fifo", "directory"])
def test_a_journal_that_is_no_file_is_left_to_python(
    noted: Start, tmp_path: Path, put: Callable[[Path], None]
) -> None:
    """It is not waited for."""
    journal = tmp_path / "root" / "v1" / "log.jsonl"
    journal.parent.mkdir(parents=True)
    put(journal)
    assert noted(_HIT.format(1, 2, 3)).stdout.startswith("Python run")


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_nothing_is_written_to_a_journal_in_a_place_of_others(
    noted: Start, tmp_path: Path, mode: int
) -> None:
    """They might have put it there."""
    journal = tmp_path / "root" / "v1" / "log.jsonl"
    journal.parent.mkdir(parents=True)
    journal.touch(0o600)
    journal.parent.chmod(mode)
    assert noted(_HIT.format(1, 2, 3)).stdout.startswith("Python run")
    assert journal.read_bytes() == b""


def test_hits_of_an_image_need_no_root_that_can_be_written(noted: Start, environ: dict[str, str]) -> None:
    """Where none can be made, there is nothing to count."""
    environ["GPUCACHE_DIR"] = "/sys/gpucache"
    assert noted(_HIT.format(1, 2, 3)).stderr.startswith("gpucache: 1 build: 1 hit")


def test_hits_need_no_own_root_that_can_be_written(noted: Start, environ: dict[str, str]) -> None:
    """There is nothing to count in one that is there, as on a disk that is mounted to be read."""
    with tempfile.TemporaryDirectory() as place:
        environ["GPUCACHE_DIR"] = f"{place}/root"
        Path(environ["GPUCACHE_DIR"]).mkdir()
        readable = (
            "unshare",
            "--mount",
            "sh",
            "-c",
            f'mount -t tmpfs -o ro none {place}/root && exec "$@"',
            "sh",
        )
        if run_text([*readable, "true"]).returncode:
            pytest.skip("nothing may be mounted here")
        assert noted(_HIT.format(1, 2, 3), outer=readable).stderr.startswith("gpucache: 1 build: 1 hit")


def test_a_journal_is_appended_to_up_to_its_limit(noted: Start, tmp_path: Path) -> None:
    """Which is the store's, that leaves half of it."""
    journal = tmp_path / "root" / "v1" / "log.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(b"x" * (LOG_CAP - 1))
    assert noted(_HIT.format(1, 2, 3)).stdout == ""
    assert noted(_HIT.format(1, 2, 3), name="other").stdout.startswith("Python run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator can act as another user")
def test_a_user_without_a_home_is_left_to_python(libraries: Path, environ: dict[str, str]) -> None:
    """Whose HOME is /, where nobody but the administrator has a cache."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(libraries, place, dirs_exist_ok=True)
        Path(place).chmod(0o755)
        program = (Path(place) / build.file_name(build.STARTER), f"--by={len(_PYTHON)}", *_PYTHON)
        home = {**environ, "GPUCACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": "/", "TMPDIR": "/tmp"}
        done = run_text([*program, "run", "--", "true"], env=home, user=65534, cwd="/")
    assert done.stdout == "Python run -- true\n"


def test_signals_are_passed_on(libraries: Path, environ: dict[str, str]) -> None:
    """The command ends by its own handler, and its code is ours."""
    program = [str(libraries / build.file_name(build.STARTER)), "--by=1", "false", "run", "--"]
    script = "trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen([*program, "sh", "-c", script], env=environ, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGUSR1)
        assert child.wait() == 9


def test_a_command_outlives_a_python_that_cannot_be_started(libraries: Path, environ: dict[str, str]) -> None:
    """It goes on without answers, and keeps its code."""
    program = [str(libraries / build.file_name(build.STARTER)), "--by=1", "/no/python", "run", "--"]
    done = run_text([*program, sys.executable, "-c", _ASKS], env=environ)
    assert (done.returncode, done.stderr) == (
        4,
        "gpucache: cannot start /no/python: No such file or directory; install gpucache again\n",
    )


def test_without_python_the_end_is_the_commands_signal(libraries: Path, environ: dict[str, str]) -> None:
    program = (libraries / build.file_name(build.STARTER), "--by=1", "/no/python", "run", "--")
    assert run_text([*program, "sh", "-c", "kill -TERM $$"], env=environ).returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    "broken",
    [
        "sys.modules['gpucache.cli.running'] = None",
        "import gpucache.cli.running as made; made.libraries = None",
    ],
    ids=["at its start", "without libraries"],
)
@pytest.mark.parametrize(("ends", "code"), [(_ASKS, 4), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_a_command_outlives_a_python_that_fails(
    libraries: Path, environ: dict[str, str], broken: str, ends: str, code: int
) -> None:
    """It is waited for, and keeps its code."""
    python = (sys.executable, "-c", f"import sys; {broken}; from gpucache.cli import main; sys.exit(main())")
    program = (libraries / build.file_name(build.STARTER), f"--by={len(python)}", *python)
    done = run_text([*program, "run", "--", sys.executable, "-c", ends], env=environ)
    assert done.returncode == code, done.stderr


def test_python_goes_on_with_the_command(libraries: Path, environ: dict[str, str], tmp_path: Path) -> None:
    """The real one: a question is answered, the directory goes, and the code is the command's."""
    program = (libraries / build.file_name(build.STARTER), "--by=3", sys.executable, "-m", "gpucache")
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from gpucache.serve.wire import Kind
from tests.serve.client import ask
print(ask(Path(os.environ["GPUCACHE_RUN_SOCKET"]), Kind.LOADED).kind)
sys.exit(6)
"""
    done = run_text([*program, "run", "--", sys.executable, "-c", code], env=environ)
    assert (done.returncode, done.stdout.strip().isdigit()) == (6, True), done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


def test_directories_of_killed_runs_are_removed(
    libraries: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    """The next run does it; the directory of one that still runs stays."""
    program = [str(libraries / build.file_name(build.STARTER)), "--by=1", "false", "run", "--"]
    temporary, go_on = tmp_path / "tmp", tmp_path / "go-on"
    waits = f"touch {tmp_path}/began-$$; while [ ! -e {go_on} ]; do sleep 0.05; done"
    killed, alive = (subprocess.Popen([*program, "sh", "-c", waits], env=environ) for _ in range(2))
    wait_until(lambda: len([*tmp_path.glob("began-*")]) == 2)  # before that a child may have the lock, too
    killed.kill()
    killed.wait()
    assert run_text([*program, "true"], env=environ).returncode == 0
    assert len([*temporary.iterdir()]) == 1
    go_on.touch()
    assert alive.wait() == 0
    assert [*temporary.iterdir()] == []


@pytest.mark.parametrize("own", [None, "x=1", "glibc.rtld.optional_static_tls=9000:y=2:broken"])
def test_the_environment_is_the_one_that_python_makes(
    start: Start, libraries: Path, environ: dict[str, str], own: str | None
) -> None:
    """Compared variable by variable, with other layers and auditors of the user's."""
    from gpucache.serve.environment import Libraries, intercepted, own_filters

    more = {"OPENCL_LAYERS": f"/old/{build.file_name('opencl_layer')}:/theirs.so"}
    if own is not None:
        more["GLIBC_TUNABLES"] = own
    names = ("SOCKET", "ROOTS", "FILTERS", "TUNABLES")
    shown = [f"GPUCACHE_RUN_{name}" for name in names] + ["OPENCL_LAYERS", "LD_AUDIT", "GLIBC_TUNABLES"]
    text = f"import json, os; print(json.dumps({{name: os.environ.get(name) for name in {shown}}}))"
    done = start("run", "--", sys.executable, "-c", text, **more)
    found = json.loads(done.stdout)
    layer, audit = (str(libraries / build.file_name(name)) for name in ("opencl_layer", "nvrtc_audit"))
    expected = intercepted(
        {**environ, **more},
        found["GPUCACHE_RUN_SOCKET"],
        Libraries(layer, audit),
        environ["GPUCACHE_DIR"],
        own_filters(),
    )
    assert found == {name: expected.get(name) for name in shown}


@pytest.mark.parametrize("lib", ["lib", "lib64"])
def test_an_installed_program_finds_its_libraries_and_its_script(
    libraries: Path, environ: dict[str, str], tmp_path: Path, lib: str
) -> None:
    """The script next to it starts Python, which decides where there are packages of two versions."""
    package = tmp_path / "env" / lib / "python3.11" / "site-packages" / "gpucache" / "native" / "lib"
    shutil.copytree(libraries, package)
    own = tmp_path / "env" / "bin" / "gpucache"
    own.parent.mkdir()
    shutil.copy(libraries / build.file_name(build.STARTER), own)
    script = own.with_name("gpucache-python")
    script.write_text('#!/bin/sh\necho "Python $*"\n')
    script.chmod(0o755)
    link = tmp_path / "gpucache"
    link.symlink_to(own)
    shows = ("run", "-q", "--", "sh", "-c", 'echo "$OPENCL_LAYERS"')
    found = run_text([link, *shows], env=environ).stdout.strip()
    assert Path(found).samefile(package / build.file_name("opencl_layer"))
    assert run_text([link, "inspect"], env=environ).stdout == "Python inspect\n"
    shutil.copytree(package.parents[2], tmp_path / "env" / lib / "python3.12" / "site-packages")
    assert run_text([link, *shows], env=environ).stdout.startswith("Python run -q -- sh")


def test_an_installed_program_needs_no_proc_to_start_python(libraries: Path, tmp_path: Path) -> None:
    """It finds the script by the path that it was started with."""
    if run_text([*_WITHOUT_PROC, "true"]).returncode:
        pytest.skip("nothing may be mounted here")
    (tmp_path / "bin").mkdir()
    own = tmp_path / "bin" / "gpucache"
    shutil.copy(libraries / build.file_name(build.STARTER), own)
    script = own.with_name("gpucache-python")
    script.write_text('#!/bin/sh\necho "Python $*"\n')
    script.chmod(0o755)
    found = {**os.environ, "PATH": f"{own.parent}:{os.environ['PATH']}"}
    assert run_text([*_WITHOUT_PROC, "gpucache", "inspect"], env=found).stdout == "Python inspect\n"


_STARTS = """
import sys
print("before")
import gpucache.cli.running as running
running.starter = lambda: {starter!r}
from gpucache.cli import main
sys.argv[1:] = {own!r} or sys.argv[1:]
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("words", "own", "begins"),
    [
        (["run", "--", "true"], [], True),
        (["run", "-q", "--", "true"], [], True),
        (["run", "--learn", "--", "true"], [], False),
        ([], ["run", "--", "true"], False),
    ],
    ids=["plain", "quiet", "option", "set"],
)
def test_python_begins_by_the_program_what_is_plain(
    environ: dict[str, str], tmp_path: Path, words: list[str], own: list[str], begins: bool
) -> None:
    """Where it can be started again; what was printed before is not lost then."""
    starter = tmp_path / "starter"
    starter.write_text('#!/bin/sh\nwhile [ "$1" != run ]; do shift; done; echo "C $*"\n')
    starter.chmod(0o755)
    code = _STARTS.format(starter=str(starter), own=own)
    done = run_text([sys.executable, "-c", code, *words], env=environ)
    assert (done.stdout == f"before\nC {' '.join(words)}\n") == begins, done.stderr
    assert (done.returncode, "C run" in done.stdout) == (0, begins)


def test_python_does_what_a_program_that_cannot_be_started_would(
    environ: dict[str, str], tmp_path: Path
) -> None:
    starter = tmp_path / "starter"
    starter.touch(mode=0o755)
    code = _STARTS.format(starter=str(starter), own=[])
    done = run_text([sys.executable, "-c", code, "run", "--", "sh", "-c", "exit 7"], env=environ)
    assert (done.returncode, done.stdout) == (7, "before\n"), done.stderr


@pytest.mark.parametrize(
    "words", [("-u", "here/app.py"), ("-W", "ignore", "a.py"), ("-m", "pkg"), ("-c", "pass"), ("dir/",)]
)
def test_a_script_is_counted_under_its_name(
    start: Start, tmp_path: Path, libraries: Path, words: tuple[str, ...]
) -> None:
    """As Python names it."""
    (tmp_path / "lines").write_text(f"{_HIT.format(1, 2, 3)}\n")
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\nset -- {tmp_path}/lines 0\n{_NOTES}\n")
    python.chmod(0o755)
    start("run", "-q", "--", python, *words)
    [record] = DirectoryStore(tmp_path / "root", writable=False).journal_tail(2)
    assert record["command"] == command_name([str(python), *words])
