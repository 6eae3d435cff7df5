"""A worker that crashes, hangs, takes too much memory or raises fails only its own item."""

import operator
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from gpucache.engine.workers.opened_files import UNANSWERED
from gpucache.engine.workers.pool import Bounds, Died, Done, Failed, require_start, run_isolated
from gpucache.errors import TargetError, WorkersError
from tests.children import has_ended, run_text
from tests.patience import PATIENCE_S, wait_until

# The items are callables of the standard library, which any process can unpickle.
Item = Callable[[], Any]
Answers = dict[str, Done[Any] | Failed | Died]

GIB = 1024**3
ITEMS: dict[str, Item] = {
    "before": os.getpid,
    "crash": os.abort,
    "hang": signal.pause,
    "spin": partial(any, iter(int, 1)),
    "exit": partial(os._exit, 7),
    "leave": partial(os._exit, 0),
    "memory": partial(bytearray, 4 * GIB),
    "raise": partial(int, "x"),
    "refuse": partial(exec, "from gpucache.errors import TargetError; raise TargetError('no such target')"),
    "after": os.getcwd,
}


def _run(items: list[Item], bounds: Bounds) -> list[tuple[Item, Done[Any] | Failed | Died]]:
    return list(run_isolated(operator.call, items, bounds))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_workers_stack_has_a_limit() -> None:
    """Even if its parent's stack has none, as no other memory limit includes the stack."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_STACK)
    if before[1] != resource.RLIM_INFINITY:
        pytest.skip("the stack cannot be made endless here")
    resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, before[1]))
    try:
        ((_, answer),) = _run([partial(resource.getrlimit, resource.RLIMIT_STACK)], Bounds())
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, before)
    assert isinstance(answer, Done) and 0 < answer.value[0] <= GIB


@pytest.fixture(scope="module")
def answers() -> Answers:
    """The results of one good item before, one after, and of every failing one between them."""
    names = {id(item): name for name, item in ITEMS.items()}
    endless = [ITEMS["hang"], ITEMS["spin"]]  # a limit that others could run into is for these alone
    others = [item for item in ITEMS.values() if item not in endless]
    bounds = Bounds(jobs=2, memory_bytes=GIB)
    answers = [*_run(others, bounds), *_run(endless, replace(bounds, timeout_s=1.0))]
    return {names[id(item)]: answer for item, answer in answers}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("crash", Died("its compiler process died of SIGABRT")),
        ("hang", Died("it did not end within 1 s", 1.0)),
        ("spin", Died("it did not end within 1 s", 1.0)),
        ("exit", Died("its compiler process ended with status 7")),
        ("leave", Died("its compiler process ended with status 0")),
    ],
)
def test_a_dead_worker_is_told_in_words(answers: Answers, name: str, expected: Died) -> None:
    """A crash is reported by its signal, an exit by its status, and a hang by its time limit."""
    assert answers[name] == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [("memory", "more memory"), ("raise", "invalid literal"), ("refuse", "no such target")],
)
def test_what_an_item_raises_is_its_answer(answers: Answers, name: str, words: str) -> None:
    """An exception comes back with its message; memory beyond the limit is refused to the allocating code."""
    answer = answers[name]
    assert isinstance(answer, Failed) and words in str(answer.error)


def test_our_own_errors_come_back_as_they_are(answers: Answers) -> None:
    """gpucache's own errors keep their type, and with it the exit code, on the way back from a worker."""
    answer = answers["refuse"]
    assert isinstance(answer, Failed) and isinstance(answer.error, TargetError)


def test_a_worker_that_could_not_be_watched_is_no_death() -> None:
    """If no thread can watch a compiler, that is reported, and the item is not blamed."""
    ((_, answer),) = _run([partial(os._exit, UNANSWERED)], Bounds())
    assert isinstance(answer, Failed) and "limit of processes" in str(answer.error)


def test_neighbours_are_unharmed(answers: Answers) -> None:
    """Every item has its answer, and those next to failing ones are done."""
    assert set(answers) == set(ITEMS)
    assert isinstance(answers["before"], Done) and isinstance(answers["after"], Done)


def test_workers_run_in_an_empty_directory_of_their_own() -> None:
    """A worker starts in an empty directory, which is gone afterwards."""
    items: list[Item] = [os.getcwd, partial(os.listdir, ".")]
    values = [answer.value for _, answer in _run(items, Bounds()) if isinstance(answer, Done)]
    (place,) = [value for value in values if isinstance(value, str)]  # answers come as they are ready
    assert [value for value in values if not isinstance(value, str)] == [[]]
    assert place != str(Path.cwd()) and not Path(place).parent.exists()


def test_workers_are_silent(capfd: pytest.CaptureFixture[str]) -> None:
    """Output of a driver's native code reaches neither stdout nor stderr."""
    items: list[Item] = [partial(os.write, 1, b"noise"), partial(os.write, 2, b"noise")]
    assert [answer for _, answer in _run(items, Bounds())] == [Done(5), Done(5)]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("fresh", "processes"), [(True, 3), (False, 1)])
def test_a_fresh_process_for_every_item_on_demand(fresh: bool, processes: int) -> None:
    """Items share a worker, unless each requires its own process."""
    items: list[Item] = [partial(os.getpid) for _ in range(3)]
    answers = _run(items, Bounds(fresh=fresh))
    assert len({answer.value for _, answer in answers if isinstance(answer, Done)}) == processes


_UNTIL = """
import pathlib, time
while not pathlib.Path({path!r}).exists():
    time.sleep(0.01)
"""


def test_what_is_being_worked_on_is_told(tmp_path: Path) -> None:
    """The watching process sees which items run at the moment."""
    seen = tmp_path / "seen"
    until_seen: Item = partial(exec, _UNTIL.format(path=str(seen)))

    def watch(items: Sequence[Item]) -> None:
        if items == [until_seen]:
            seen.touch()

    assert [answer for _, answer in run_isolated(operator.call, [until_seen], Bounds(), watch)] == [
        Done(None)
    ]


def test_leaving_early_ends_the_workers() -> None:
    """Closing the iterator ends a worker that would never end."""
    items: list[Item] = [os.getpid, signal.pause]
    answers = run_isolated(operator.call, items, Bounds())
    _, first = next(answers)
    assert isinstance(first, Done)
    _close(answers)
    wait_until(lambda: has_ended(first.value))


_INTERRUPTED = """
import multiprocessing.connection, operator, signal, sys, threading
from gpucache.engine.workers.pool import Bounds, run_isolated

WAITING = multiprocessing.connection.wait.__code__

def arm(items):
    if items:
        sys.settrace(strike)

def strike(frame, event, argument):
    if frame.f_code is WAITING:
        sys.settrace(None)
        signal.raise_signal(signal.{name})

if __name__ == "__main__":
    signal.signal(signal.{name}, signal.default_int_handler)
    try:
        list(run_isolated(operator.call, [signal.pause], Bounds(), arm))
    except KeyboardInterrupt:
        print("interrupted", threading.active_count())
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_at_the_worst_moment_ends_the_run(tmp_path: Path, name: str) -> None:
    """An interrupt while a worker is waited for ends the workers, and leaves no thread."""
    script = tmp_path / "interrupted.py"
    script.write_text(_INTERRUPTED.format(name=name), encoding="utf-8")
    done = run_text([sys.executable, script])
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted 1\n", "")


def _close(iterator: Iterator[object]) -> None:
    getattr(iterator, "close")()  # noqa: B009 - a generator behind the type of an iterator


_PARENT = """
import operator, sys
from functools import partial
from gpucache.engine.workers.pool import Bounds, run_isolated
HANG = '''
import os, signal
with open({path!r} + ".part", "w") as file:
    file.write(str(os.getpid()))
os.rename({path!r} + ".part", {path!r})
signal.pause()
'''
if __name__ == "__main__":
    items = [partial(exec, HANG.format(path=path)) for path in sys.argv[1:]]
    list(run_isolated(operator.call, items, Bounds(jobs=len(items))))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    """Workers of a killed process do not live on, although it had no chance to clean up."""
    script = tmp_path / "parent.py"
    script.write_text(_PARENT, encoding="utf-8")
    files = [tmp_path / "first", tmp_path / "second"]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, script, *files], env=environ)
    try:
        wait_until(lambda: all(file.exists() for file in files))
    finally:
        parent.kill()
        parent.wait()
    for file in files:
        pid = int(file.read_text(encoding="ascii"))
        wait_until(lambda: has_ended(pid))  # noqa: B023 - called at once


_RUN = """
import operator, os
from gpucache.engine.workers.pool import Bounds, run_isolated
if __name__ == "__main__":
    print([type(answer).__name__ for _, answer in run_isolated(operator.call, [os.getpid], Bounds())])
"""


def _python(script: Path, text: str, *before: str, **options: Any) -> tuple[int, str, str]:
    script.parent.mkdir()
    script.write_text(text, encoding="utf-8")
    command = [*before, sys.executable, "-P", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", ["signal.py", "struct.py", "pickle.py", "gpucache.py"])
def test_workers_import_nothing_from_the_current_directory(tmp_path: Path, name: str) -> None:
    """A file there with the name of a Python module is never run."""
    (tmp_path / name).write_text("raise SystemExit('run by mistake')", encoding="utf-8")
    assert _python(tmp_path / "scripts" / "run.py", _RUN, cwd=tmp_path) == (0, "['Done']\n", "")


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables set for the start of workers are restored."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    before = dict(os.environ)
    _run([os.getpid], Bounds())
    assert dict(os.environ) == before


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A successful start of workers is not remembered, before and after."""
    require_start.cache_clear()
    yield monkeypatch
    require_start.cache_clear()


def test_a_python_that_cannot_be_run_is_told(
    unchecked: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """If no worker can be started, one error says so and the terminal stays clean."""
    unchecked.setattr(sys, "executable", os.devnull)
    with pytest.raises(WorkersError, match="no worker process can be started"):
        _run([os.getpid], Bounds())
    assert capfd.readouterr() == ("", "")


def test_a_python_that_fails_at_its_start_is_told(
    unchecked: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python's own message is in the error, not on the terminal."""
    (tmp_path / "pickle.py").write_text("raise SystemExit('no pickle here')", encoding="utf-8")
    unchecked.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(WorkersError, match="no pickle here"):
        _run([os.getpid], Bounds())
    assert capfd.readouterr() == ("", "")


def test_a_killed_process_leaves_no_warning(tmp_path: Path) -> None:
    """The cleanup after a killed process prints nothing on its terminal."""
    kill = "partial(exec, 'import os, signal; os.kill(os.getppid(), signal.SIGKILL)')"
    text = "from functools import partial\n" + _RUN.replace("[os.getpid]", f"[{kill}]")
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    assert _python(tmp_path / "scripts" / "run.py", text, env=environ) == (-signal.SIGKILL, "", "")


def test_workers_that_die_before_they_begin_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    """If every worker fails at its start, the call ends with an error and the terminal stays clean."""
    no_limit = cast("int", "a limit that cannot be set")
    with pytest.raises(WorkersError, match="they end before they begin"):
        _run([os.getpid, os.getcwd], Bounds(jobs=2, memory_bytes=no_limit))
    assert capfd.readouterr() == ("", "")


def test_a_umask_that_takes_the_owners_rights_is_no_obstacle(tmp_path: Path) -> None:
    """Workers can use the directories made for them, also where their own module sets it once more."""
    text = "import os\nos.umask(0o777)\n" + _RUN
    root = os.geteuid() == 0 and shutil.which("setpriv")
    bound = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if root else ()
    assert _python(tmp_path / "scripts" / "run.py", text, *bound) == (0, "['Done']\n", "")


_NOBODY = 54321
"""A user id that no password file knows."""

_FORBIDDEN = """
import operator, os, sys
from gpucache.engine.workers.pool import Bounds, run_isolated
from gpucache.errors import WorkersError
if __name__ == "__main__":
    sys.executable = {python!r}
    del os.environ["HOME"]
    os.setgroups([])
    os.setuid({uid})
    try:
        list(run_isolated(operator.call, [os.getpid], Bounds()))
    except WorkersError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root becomes another user")
def test_a_python_that_this_user_may_not_run_is_told(tmp_path: Path) -> None:
    """A process without a user name and without access to Python ends in one sentence."""
    python = tmp_path / "python"
    python.touch(mode=0o700)
    text = _FORBIDDEN.format(python=str(python), uid=_NOBODY)
    status, said, complained = _python(tmp_path / "scripts" / "run.py", text)
    assert (status, complained) == (0, "")
    assert said.startswith("no worker process can be started ([Errno 13] Permission denied")


_HOME = """
import operator
from pathlib import Path
from gpucache.engine.workers.pool import Bounds, run_isolated
print([answer for _, answer in run_isolated(operator.call, [Path.home], Bounds())])
"""


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root becomes another user")
def test_a_user_without_a_name_has_a_home_in_workers(tmp_path: Path) -> None:
    """A worker of a user without a home gets one: PyOpenCL loads no binary without."""
    become = ["setpriv", f"--reuid={_NOBODY}", "--clear-groups", "env", "-u", "HOME", sys.executable, "-P"]
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "timeout": PATIENCE_S}
    if shutil.which("setpriv") is None or subprocess.run([*become, "-c", ""], **options).returncode != 0:
        pytest.skip("another user may not run this Python, or setpriv is not installed")
    done = subprocess.run([*become, "-c", _HOME], **options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[Done(")


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="only Linux chooses who has to go")
def test_workers_go_first_where_memory_runs_out() -> None:
    """The kernel's out-of-memory killer prefers a worker to its parent."""
    own = Path("/proc/self/oom_score_adj")
    ((_, answer),) = _run([own.read_text], Bounds())
    assert isinstance(answer, Done) and int(answer.value) > int(own.read_text(encoding="ascii"))
