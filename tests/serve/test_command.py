"""A command under ``gpucache run`` has its own exit code, signals, streams and terminal."""

import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event, Thread
from typing import cast

import pytest

from gpucache.answers.run import Ended, Intercepted, RunResult
from gpucache.answers.run_lines import UNSEEN
from gpucache.cli import main
from gpucache.cli.running import Running
from gpucache.serve.command import heed, run_command
from gpucache.serve.environment import Libraries
from gpucache.serve.opencl import OpenCLServing
from gpucache.serve.server import HEARD, PASSED, Handlers, Later
from gpucache.serve.wire import Fields, Kind
from tests.children import run_text
from tests.patience import PATIENCE_S
from tests.serve.conftest import Done

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")
Run = Callable[..., Done]
RUN = (sys.executable, "-m", "gpucache", "run", "--quiet", "--")
# Python may still be inside its first print when the signal comes, and that is not entered twice.
_TELL = """
import os, signal, sys, time
def tell(number, _):
    os.write(1, b"%d\\n" % number)
    sys.exit(7)
"""


@pytest.mark.parametrize("code", [0, 1, 2, 130, 255])
def test_the_exit_code_is_the_commands(run: Run, code: int) -> None:
    """Whatever the code means."""
    assert run("sh", "-c", f"exit {code}").code == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_a_signal_ends_both(run: Run, number: signal.Signals) -> None:
    """The waiting process sees the signal that ended the command."""
    done = run("sh", "-c", f"kill -{number.value} $$")
    assert done.code == -number
    assert (done.report["summary"]["exit_code"], done.report["summary"]["signal"]) == (128 + number, number)


def test_streams_are_the_commands(environment: Mapping[str, str]) -> None:
    """It reads our input and writes our output, and nothing is added."""
    done = run_text([*RUN, "sh", "-c", "cat; echo done >&2"], env=environment, input="through\n", check=True)
    assert (done.stdout, done.stderr) == ("through\n", "done\n")


def test_the_summary_is_a_line_on_stderr(run: Run) -> None:
    """Also for a command that builds nothing."""
    done = run("echo", "words")
    assert (done.out, done.err) == ("words\n", f"gpucache: {UNSEEN}\n")


def test_json_goes_to_stderr(gpucache: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    """One document, after the command's own output."""
    done = gpucache("run", "--json", "--", "sh", "-c", "echo out; exit 3")
    document = json.loads(done.stderr)
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert (document["command"], document["outcomes"]) == ("run", [])
    assert document["summary"] == {
        "command": "sh", "exit_code": 3, "signal": 0, "builds": 0, "hits": 0, "misses": 0, "kept": 0,
        "noted": 0, "failed": 0, "passed": 0, "refused": 0, "build_ms": 0, "saved_ms": 0, "ahead_ms": 0,
        "wanted": 0, "poisoned": 0, "learned": 0, "within": 0, "missed": 0, "binaries": 0, "alone": "",
        "loaded": False, "unanswered": [],
    }  # fmt: skip


def test_a_script_that_names_no_interpreter_is_run_as_shells_run_it(run: Run, tmp_path: Path) -> None:
    """By the shell, with the given words."""
    script = tmp_path / "script"
    script.write_text('echo "$@" >"$1"\n')
    script.chmod(0o700)
    assert run(str(script), str(tmp_path / "told"), "two  words").code == 0
    assert (tmp_path / "told").read_text() == f"{tmp_path / 'told'} two  words\n"


def test_a_command_that_cannot_be_started_is_told(run: Run) -> None:
    """With the exit codes of a shell: one for a missing name, another for a file that is not a program."""
    done = run("/nowhere/app")
    assert done.code == 127
    assert "'/nowhere/app' cannot be started (No such file or directory); check its name\n" in done.err
    done = run(Path(__file__).parent)
    assert done.code == 126
    assert "(Permission denied); check its name, and that it is a program that you may execute" in done.err


def test_a_command_has_to_be_named(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    """The message says how."""
    assert main(["run"]) == 2
    assert "write it after '--'" in capfd.readouterr().err


@pytest.mark.parametrize("verb", [("run",), ("record", "-o", "recording")])
def test_without_a_place_for_a_socket_a_command_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], verb: tuple[str, ...]
) -> None:
    """It is started as it would be without us, and the summary says why."""

    def none() -> str:
        raise OSError

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr("gpucache.host.scratch.temporary", none)
    monkeypatch.setattr("gpucache.serve.listening.PLACES", ())
    assert main([*verb, "--", "sh", "-c", 'echo "words$LD_AUDIT"; exit 3']) == 3
    out, err = capfd.readouterr()
    assert out == "words\n"
    assert "the command ran without gpucache: cannot make a directory for a socket" in err


@pytest.mark.parametrize("verb", ["run", "record -o recording"])
def test_where_no_file_can_be_written_a_command_is_started(
    environment: Mapping[str, str], tmp_path: Path, verb: str
) -> None:
    """A limit on the size of files, such as ``ulimit -f``, leaves room for a socket."""
    line = f"ulimit -f 0; exec {shlex.quote(sys.executable)} -m gpucache {verb} -- sh -c 'exit 3'"
    done = subprocess.run(
        ["bash", "-c", line], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert (
        "no OpenCL, NVRTC or hipRTC build was seen before the command ended with exit code 3" in done.stderr
    )


def test_without_its_library_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing could be served, so the run is refused with the remedy."""
    monkeypatch.setattr("gpucache.native.locate.BUILT", tmp_path)
    assert main(["run", "--", "echo", "words"]) == 4
    out, err = capfd.readouterr()
    assert out == "" and "run python -m gpucache.native.build" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_that_is_sent_to_us_is_passed_on(
    environment: Mapping[str, str], number: signal.Signals
) -> None:
    """The command may handle it, and we end as it does."""
    code = f"{_TELL}signal.signal({number.value}, tell)\nprint('ready', flush=True)\ntime.sleep({PATIENCE_S})"
    with subprocess.Popen(
        [*RUN, sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == f"{number.value}\n"
        assert process.wait(PATIENCE_S) == 7


def test_the_commands_signals_are_as_we_found_them(run: Run) -> None:
    """The command inherits neither the signals that Python ignores nor those that gpucache blocks."""
    done = run("sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status")
    masks = {name: int(mask, 16) for name, mask in re.findall(r"(Sig\w+):\s*(\w+)", done.out)}
    of_the_c_library = 0b11 << 31  # which handles these two anew in every process that needs them
    assert (masks["SigBlk"], masks["SigIgn"] & ~of_the_c_library) == (0, 0)


class Terminal:
    """A terminal with a shell, as a user has it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.child, self._end = pty.fork()
        if self.child == 0:
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], {**environment, "PS1": "$ "})
        self._seen = ""
        self.expect("$ ")

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def expect(self, text: str) -> None:
        """Wait until the text appears after all text waited for before."""
        limit = time.monotonic() + PATIENCE_S
        while text not in self._seen:
            assert time.monotonic() < limit, self._seen
            if select.select([self._end], [], [], 1)[0]:
                self._seen += os.read(self._end, 4096).decode(errors="replace")
        self._seen = self._seen.partition(text)[2]

    def close(self) -> None:
        os.close(self._end)
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)


@pytest.fixture
def terminal(environment: Mapping[str, str]) -> Iterator[Terminal]:
    if not Path("/bin/bash").exists():
        pytest.skip("bash is not installed")
    opened = Terminal(environment)
    yield opened
    opened.close()


def _typed(*command: str) -> str:
    return shlex.join((*RUN, *command)) + "\n"


_HEARS = """
import signal, time
heard = []
signal.signal(signal.SIGINT, lambda *_: heard.append("heard"))
print("rea" + "dy", flush=True)
while not heard:
    time.sleep(0.01)
print(*heard, "alone", flush=True)
"""


def test_an_interrupt_reaches_the_command_once(terminal: Terminal, tmp_path: Path) -> None:
    """The terminal sends Ctrl-C, and the command handles it."""
    program = tmp_path / "hears.py"
    program.write_text(_HEARS)
    terminal.type(_typed(sys.executable, str(program)))
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("heard alone")
    terminal.type("echo left $?\n")
    terminal.expect("left 0")


def test_an_interrupt_ends_the_command_and_us(terminal: Terminal) -> None:
    """The shell sees a command that Ctrl-C ended."""
    terminal.type(_typed("sh", "-c", "echo rea''dy; exec sleep 900"))
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("$ ")
    terminal.type("echo left $?\n")
    terminal.expect("left 130")


def test_a_stopped_command_is_a_stopped_job(terminal: Terminal) -> None:
    """Ctrl-Z gives the shell its terminal back, and fg continues the command."""
    terminal.type(_typed("sh", "-c", "echo rea''dy; read word; echo got $word"))
    terminal.expect("ready")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.type("fg\n")
    terminal.expect("gpucache run")
    terminal.type("there\n")
    terminal.expect("got there")


def test_a_command_that_ignores_the_stop_goes_on(terminal: Terminal) -> None:
    """We go on too, as its terminal is in use."""
    terminal.type(_typed("sh", "-c", "trap '' TSTP; echo rea''dy; read word; echo got $word"))
    terminal.expect("ready")
    terminal.type("\x1athere\n")
    terminal.expect("got there")


class _Answers:
    """A service that records every request."""

    handlers: Handlers = {Kind.OTHER: lambda _: HEARD}

    def finish(self) -> tuple[Intercepted, ...]:
        return ()


_ASKS = f"""
import os, sys
from pathlib import Path
from tests.serve.client import ask
Path(sys.argv[1]).write_text("started")
sys.exit(ask(Path(os.environ["GPUCACHE_RUN_SOCKET"]), {Kind.OTHER.value}, b"1").kind)
"""


def _run_command(argv: list[str], handlers: Handlers) -> Ended:
    try:
        return run_command(argv, os.environ, Libraries(), handlers)
    finally:
        heed()


def test_a_service_is_made_when_it_is_asked(tmp_path: Path) -> None:
    """The command is running by then; its first question waits for the service, and is answered."""
    begun = tmp_path / "begun"
    made: list[str] = []

    def make() -> _Answers:
        made.append(begun.read_text())
        return _Answers()

    later = Later(make, [Kind.OTHER])
    ended = _run_command([sys.executable, "-c", _ASKS, str(begun)], later.handlers)
    assert (ended, made) == (Ended(Kind.OK.value), ["started"])


def test_a_command_that_asks_nothing_has_no_service_made() -> None:
    """It costs nothing, and no build is reported."""
    later = Later(lambda: pytest.fail("it was made"), [Kind.OTHER])
    assert _run_command(["true"], later.handlers) == Ended(0)
    assert (later.made, later.finish()) == (None, ())


class _Built:
    """A service with two builds, of which the second ended first."""

    handlers: Handlers = {}

    def finish(self) -> tuple[Intercepted, ...]:
        asked = {"first": 1, "second": 2}
        return tuple(
            Intercepted(name, "", RunResult.PASSED, begun_ns=asked[name]) for name in ("second", "first")
        )


def test_a_service_that_nothing_has_asked_is_made_when_it_is_wanted() -> None:
    """It is made once, for launches that are noted after the command's end; an error leaves none."""

    def broken() -> _Built:
        raise OSError("no driver")

    later = Later(_Built, [])
    made = later.now()
    assert isinstance(made, _Built) and later.now() is made
    assert Later(broken, []).now() is None


def test_a_service_is_made_without_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """None may be left; questions would wait for one that is never made."""

    def none_left(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", none_left)
    assert isinstance(Later(_Built, []).now(), _Built)


def test_builds_are_reported_in_the_order_of_their_start() -> None:
    """The order in which they end depends on threads."""
    running, later = Running(["true"], ""), Later(_Built, [])
    later.made = _Built()
    running.opencl = cast("Later[OpenCLServing]", later)
    assert [one.program for one in running.finish()] == ["first", "second"]


_TELLS = f"""
import os, sys
from pathlib import Path
from tests.serve.client import ask
said = ask(Path(os.environ["GPUCACHE_RUN_SOCKET"]), {Kind.LOADED.value}).kind
sys.exit(said + len(Path(sys.argv[1]).read_text()))
"""


def test_a_loaded_layer_has_its_service_made(tmp_path: Path) -> None:
    """The layer is answered at once, and the service is started while the command's driver starts."""
    made = tmp_path / "made"
    os.mkfifo(made)

    def make() -> _Answers:
        made.write_text("made")  # which waits for the command to read it
        return _Answers()

    later = Later(make, [Kind.LOADED, Kind.OTHER])
    ended = _run_command([sys.executable, "-c", _TELLS, str(made)], later.handlers)
    assert ended == Ended(Kind.OK.value + len("made"), loaded=True)


def test_a_build_that_comes_before_its_service_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits only a limited time, and is counted among the unserved builds."""
    asked = Event()

    def make() -> _Answers:
        assert asked.wait(PATIENCE_S)
        return _Answers()

    monkeypatch.setenv("GPUCACHE_RUN_TIMEOUT_MS", "1")
    later = Later(make, [Kind.BUILD])
    assert later.handlers[Kind.BUILD](Fields([])) == PASSED
    asked.set()
    (told,) = later.finish()
    assert (told.result, told.reason) == (RunResult.PASSED, "the server was not ready in time")


def test_a_service_that_cannot_be_made_is_told_and_no_error(tmp_path: Path) -> None:
    """The command is passed, runs as without us and keeps its exit code; the reason comes afterwards."""

    def make() -> _Answers:
        raise OSError("nothing can be opened")

    later = Later(make, [Kind.OTHER])
    ended = _run_command([sys.executable, "-c", _ASKS, str(tmp_path / "ended")], later.handlers)
    assert ended == Ended(Kind.PASS.value)
    (told,) = later.finish()
    assert told.result is RunResult.PASSED
    assert told.reason == "the server could not be started: nothing can be opened"


_ROOMY = """
__thread char block[1800] __attribute__((tls_model("initial-exec")));
char *roomy(void) { return block; }
"""


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[[str], Path]:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler is installed")

    def made(source: str) -> Path:
        (tmp_path / "a.c").write_text(source)
        command = [compiler, "-shared", "-fPIC", "-o", str(tmp_path / "a.so"), str(tmp_path / "a.c")]
        subprocess.run(command, check=True)
        return tmp_path / "a.so"

    return made


@pytest.mark.parametrize("verb", ["run --quiet", "record --quiet -o recording", "export layer layer --quiet"])
def test_a_program_with_a_preloaded_allocator_starts(
    verb: str, compiled: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its library has thread-local variables as large as jemalloc's, for which an auditor leaves no room."""
    library = compiled(_ROOMY)
    command = ["env", f"LD_PRELOAD={library}", "sh", "-c", "exit 7"]
    words = [sys.executable, "-m", "gpucache", *verb.split(), "--", *command]
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root")}
    done = run_text(words, env=environ, cwd=tmp_path)
    assert (done.returncode, "static TLS" in done.stderr) == (7, False), done.stderr


def test_a_program_for_which_no_room_is_enough_starts_without_the_auditor(
    compiled: Callable[[str], Path], tmp_path: Path
) -> None:
    """The line at its end names the option."""
    library = compiled(_ROOMY.replace("1800", "100000"))
    command = ["--", "env", f"LD_PRELOAD={library}", "sh", "-c", "exit 7"]
    words = [sys.executable, "-m", "gpucache", "run"]
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root")}
    refused = run_text([*words, *command], env=environ)
    assert (refused.returncode, "or run it with --no-nvrtc" in refused.stderr) == (127, True)
    assert run_text([*words, "--no-nvrtc", *command], env=environ).returncode == 7


def test_a_program_that_opens_many_libraries_with_thread_local_variables_goes_on(
    compiled: Callable[[str], Path], tmp_path: Path
) -> None:
    """With an auditor alone glibc passes memory to realloc that malloc did not give."""
    library = compiled("__thread char block[8];\nchar *roomy(void) { return block; }")
    copies = [tmp_path / f"{number}.so" for number in range(80)]
    for copy in copies:
        shutil.copyfile(library, copy)
    linked, opened = copies[:20], copies[20:]
    code = "import ctypes, sys\nfor name in sys.argv[1:]: ctypes.CDLL(name).roomy()\nprint('went on')"
    preload = "LD_PRELOAD=" + ":".join(map(str, linked))
    words = [sys.executable, "-m", "gpucache", "run", "--quiet", "--", "env", preload, sys.executable, "-c"]
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root")}
    done = run_text([*words, code, *map(str, opened)], env=environ)
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr


def test_a_thread_joins_the_first_one_that_has_ended(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    """glibc then frees what the first thread has of thread-local variables, with the program's malloc."""
    library = compiled("""
#include <pthread.h>
#include <stdlib.h>
static pthread_t first;
static void *join(void *none) { (void)none; _Exit(pthread_join(first, NULL) ? 1 : 7); }
void leave(void) {
    pthread_t other;
    first = pthread_self();
    pthread_create(&other, NULL, join, NULL);
    pthread_exit(NULL);
}""")
    words = [sys.executable, "-m", "gpucache", "run", "--quiet", "--", sys.executable, "-c"]
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root")}
    done = run_text([*words, f"import ctypes; ctypes.CDLL({str(library)!r}).leave()"], env=environ)
    assert done.returncode == 7, done.stderr


_HELD = """
import importlib.abc, importlib.machinery, sys, threading
from pathlib import Path
name, begun = sys.argv[1:3]
class Held(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, wanted, path, target=None):
        return importlib.machinery.ModuleSpec(wanted, self) if wanted == name else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        Path(begun).write_text("begun")  # which waits for the command to read it
        threading.Event().wait()
sys.meta_path.insert(0, Held())
sys.argv[1:] = sys.argv[3:]
from gpucache.cli import main
sys.exit(main())
"""
_ENDS = f"""
import os, sys
from pathlib import Path
from tests.serve.client import ask
ask(Path(os.environ["GPUCACHE_RUN_SOCKET"]), {Kind.LOADED.value}, b"")
assert Path(sys.argv[1]).read_text() == "begun"
os.kill(os.getpid(), int(sys.argv[2])) if len(sys.argv) > 2 else sys.exit(7)
"""


@pytest.mark.parametrize("held", ["gpucache.probe.ask", "gpucache.serve.devices", "gpucache.serve.opencl"])
@pytest.mark.parametrize(
    ("options", "ends", "code"), [((), (), 7), (("--quiet",), (), 7), ((), ("15",), -15)], ids=str
)
def test_a_command_that_ends_while_its_server_is_imported_keeps_its_code(
    held: str, options: tuple[str, ...], ends: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """The thread that imports holds a half-made module at that moment, which nothing may ask."""
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    command = [sys.executable, "-c", _ENDS, str(begun), *ends]
    done = run_text(
        [sys.executable, "-c", _HELD, held, str(begun), "run", *options, "--", *command],
        env={**os.environ, "GPUCACHE_DIR": str(tmp_path / "root")},
    )
    assert done.returncode == code
    assert all(line.startswith("gpucache: no ") for line in done.stderr.splitlines())


def test_a_report_that_fails_does_not_change_the_code(tmp_path: Path) -> None:
    """A defect in it is told, and the command has ended as it did."""
    broken = "import gpucache.answers.run as run; run.summarise_run = None; "
    start = f"{broken}import sys; from gpucache.cli import main; sys.exit(main())"
    words = ("run", "--json", "--", "sh", "-c", "exit 5")
    done = run_text([sys.executable, "-c", start, *words], env={**os.environ, "GPUCACHE_DIR": str(tmp_path)})
    assert done.returncode == 5
    assert done.stderr.startswith("gpucache: the command's builds cannot be reported (TypeError: ")


_LATE = """
import os, sys
from {module} import {owner} as owner
def late(*arguments, own=owner.{name}):
    {what}
    return own(*arguments)
owner.{name} = late
from gpucache.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("verb", "place"),
    [
        ("run --quiet --learn", "gpucache.cli.running Running finish"),
        ("record --quiet -o recording", "gpucache.host.scratch scratch remove"),
    ],
)
def test_an_interrupt_after_the_end_does_not_change_the_code(
    verb: str, place: str, number: signal.Signals, tmp_path: Path
) -> None:
    """The report is cut short at most: a first interrupt was for the command, and it has done its work."""
    module, owner, name = place.split()
    what = f"os.kill(os.getpid(), {number.value})"
    start = _LATE.format(module=module, owner=owner, name=name, what=what)
    words = [*verb.split(), "--", "sh", "-c", "exit 7"]
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root")}
    assert run_text([sys.executable, "-c", start, *words], env=environ, cwd=tmp_path).returncode == 7


def test_a_socket_that_cannot_be_removed_does_not_change_the_code(tmp_path: Path) -> None:
    """Nor does it hide it."""
    start = _LATE.format(
        module="gpucache.serve.listening", owner="Listening", name="close", what="raise OSError('no disk')"
    )
    words = ["run", "--learn", "--", "sh", "-c", "exit 7"]
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root")}
    done = run_text([sys.executable, "-c", start, *words], env=environ)
    assert (done.returncode, "gpucache: not served: the server failed: no disk" in done.stderr) == (7, True)
