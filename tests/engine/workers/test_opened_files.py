"""Files that a worker's threads and children open are seen; a worker that cannot be traced still works."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gpucache.engine.workers.opened_files import UNANSWERED
from gpucache.engine.workers.pool import Bounds, Died, Done, Failed, run_isolated
from tests.net import require_net
from tests.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="opens are told by Linux alone")

_HEAD = """
import os, resource, socket, subprocess, threading
from gpucache.engine.workers.opened_files import OPENED_FILES, OpenedFiles

def watch(code):
    return OPENED_FILES.watch(lambda: exec(code, globals()))[1]

"""
WAYS = {
    "itself": "open(path).close()",
    "in a thread": "t = threading.Thread(target=lambda: open(path).close()); t.start(); t.join()",
    "in a child": "subprocess.run(['cat', path], stdout=subprocess.DEVNULL, check=True)",
    "by a name from its directory": "os.chdir(folder); open(name).close()",
    "by a name from a folder": "f = os.open(folder, os.O_RDONLY); os.close(os.open(name, 0, dir_fd=f))",
    "under a long name": "open(folder + '/.' * 1000 + '/' + name).close()",
}
UNSEEN = {
    "opened before": "open(path).close(); seen = watch('')",
    "opened after": "seen = watch(''); open(path).close()",
    "opened in the compile before": "watch('open(path).close()'); seen = watch('')",
    "opened to be written": "seen = watch(\"open(path, 'r+').close()\")",
    "a place alone": "seen = watch('os.close(os.open(path, os.O_PATH))')",
    "a folder": "seen = watch('os.listdir(folder)')",
    "the worker's own": "open('here', 'w').close(); seen = watch(\"open('here').close()\")",
}


@pytest.fixture(scope="module", autouse=True)
def looking() -> None:
    require_net()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "folder" / "a file"
    file.parent.mkdir()
    file.write_text("text", encoding="ascii")
    return file


def _run(code: str, path: Path, **bounds: Any) -> Done[Any] | Failed | Died:
    """The answer of a worker to ``code``, which is the value that it leaves in ``seen``."""
    names = {"path": str(path), "folder": str(path.parent), "name": path.name}
    text = f"(g := {names!r}, exec({_HEAD + code!r}, g), g['seen'])[2]"
    ((_, answer),) = run_isolated(eval, [text], Bounds(**({"watched": True} | bounds)))
    return answer


def _seen(code: str, path: Path) -> set[Path]:
    answer = _run(code, path)
    assert isinstance(answer, Done), answer
    return {Path(name) for name in answer.value}


@pytest.mark.parametrize("way", WAYS)
def test_an_open_is_seen(path: Path, way: str) -> None:
    """A file that is read meanwhile is reported by its absolute path, by any opener and name."""
    assert path in _seen(f"seen = watch({WAYS[way]!r})", path)


@pytest.mark.parametrize("case", UNSEEN)
def test_what_is_no_reading_of_the_compile_is_not_told(path: Path, case: str) -> None:
    """Only files opened for reading, and during the compile, are reported."""
    seen = _seen(UNSEEN[case], path)
    assert not {one for one in seen if path.parent in (one, one.parent) or one.name == "here"}


def test_every_worker_has_its_own_answer(path: Path) -> None:
    """Two simultaneous workers each report their own files."""
    items = [path.with_name(name) for name in ("one", "two")]
    for item in items:
        item.touch()
    meet = "while len(os.listdir(folder)) < 5: pass\n"
    text = "open(folder + '/at-' + name, 'w').close()\n" + meet + "seen = watch('open(path).close()')"
    texts = [
        f"(g := {{'path': {str(item)!r}, 'folder': {str(path.parent)!r}, 'name': {item.name!r}}}, "
        f"exec({_HEAD + text!r}, g), g['seen'])[2]"
        for item in items
    ]
    answers = dict(run_isolated(eval, texts, Bounds(jobs=2, watched=True)))
    values = [answer.value for answer in map(answers.get, texts) if isinstance(answer, Done)]
    assert [{one for one in value if one.startswith(str(path.parent))} for value in values] == [
        {str(item)} for item in items
    ]


@pytest.mark.parametrize(
    ("before", "bounds"),
    [
        ("", {"watched": False}),
        ("resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0), 4096))", {}),
        ("watch('')\nOPENED_FILES = OpenedFiles()\nOPENED_FILES.ask_at(socket.socketpair()[0], folder)", {}),
    ],
    ids=["not asked for", "no descriptor is left", "the kernel refuses a second filter"],
)
def test_where_nobody_can_look_all_works_as_without(path: Path, before: str, bounds: dict[str, Any]) -> None:
    """The compile succeeds, and None says that its reads were not seen."""
    code = f"{before}\nos.stat(path)\nseen = OPENED_FILES.watch(lambda: 7)"
    assert _run(code, path, **bounds) == Done((7, None))


def test_a_worker_ends_when_nobody_answers(tmp_path: Path) -> None:
    """Its opens would fail, so no compile could be trusted: it dies, and the item is tried again."""
    inside, outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    script = f"""
import socket, sys
from gpucache.engine.workers.opened_files import OPENED_FILES
OPENED_FILES.ask_at(socket.socket(fileno={outside.fileno()}), "/nonexistent")
print(OPENED_FILES.watch(lambda: 7))
"""
    command = [sys.executable, "-c", script]
    with (
        inside,
        outside,
        subprocess.Popen(command, pass_fds=[outside.fileno()], stdout=subprocess.PIPE, text=True) as child,
    ):
        _, descriptors, _, _ = socket.recv_fds(inside, 1, 2)
        for descriptor in descriptors:
            os.close(descriptor)
        assert (child.communicate(timeout=PATIENCE_S)[0], child.returncode) == ("", UNANSWERED)


@pytest.mark.parametrize("end", ["pass", "os.abort()", "os.kill(os.getpid(), 9)"])
def test_nothing_stays_behind_a_worker(path: Path, end: str) -> None:
    """However a watched worker ends, the threads and descriptors that served it are gone after it."""
    threads, descriptors = set(threading.enumerate()), len(list(Path("/proc/self/fd").iterdir()))
    _run(f"seen = None; watch({end!r})", path)
    wait_until(lambda: set(threading.enumerate()) <= threads)
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


def test_a_watched_worker_is_ended_in_time(path: Path) -> None:
    """A time limit ends a worker that opens files without end."""
    answer = _run("seen = watch('while True: open(path).close()')", path, timeout_s=1.0)
    assert answer == Died("it did not end within 1 s", 1.0)
