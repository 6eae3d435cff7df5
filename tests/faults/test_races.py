"""Programs that race on one cache: one compile, no failure, and never wrong bytes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpucache
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Absent, Found
from tests.faults.conftest import build_entry
from tests.patience import PATIENCE_S
from tests.store.conftest import left
from tests.trials import tell, trials

_PROCESS = Path(__file__).with_name("racing_process.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.stress,
    pytest.mark.skipif(os.name != "posix", reason="needs locks that the kernel frees, and forks"),
]


def _run(*words: object, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=8 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _said(*words: object) -> Any:
    return json.loads(_run(_PROCESS, *words))


@pytest.mark.parametrize(
    ("how", "count", "keys"),
    [("processes", 64, 1), ("threads", 64, 1), ("processes", 8, 6), ("threads", 8, 6)],
)
def test_programs_that_want_the_same_keys_at_once_compile_each_once(how: str, count: int, keys: int) -> None:
    """However many they are, and in any order, all get the right programs."""
    rounds = trials(1, 10)
    said = _said(how, count, rounds, keys)
    wrong = [one for one in said if one != {"asked": keys, "right": count * keys, "failed": 0}]
    tell(f"{count} {how} that want {keys} keys at once (rounds)", rounds, len(wrong))
    assert wrong == [] and len(said) == rounds


def test_readers_get_the_right_bytes_while_everything_changes(tmp_path: Path) -> None:
    """6 readers that build their misses, 4 writers, one evict, one repair and one that damages entries."""
    said = _said("everybody", tmp_path, trials(100, 25_000))
    tell(
        "reads by 6 readers while 4 writers, evict, repair and damage change the cache",
        said["reads"],
        len(said["problems"]),
    )
    assert said["problems"] == []
    assert said["built"] > 0


_MULTIPROCESSING = """
import multiprocessing, sys
from gpucache.cuda import compile_program

def show(number):
    source = 'extern "C" __global__ void show(int *out) { *out = 7; }'
    return compile_program(source, target="compute_90").code

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(3) as pool:
        codes = pool.map(show, range(6))
    assert len(codes) == 6 and set(codes) == {show(0)}
"""


@pytest.mark.parametrize("how", ["spawn", "forkserver", "fork"])
def test_children_of_multiprocessing_share_what_one_of_them_built(tmp_path: Path, how: str) -> None:
    """All get the same program, and there is one file."""
    script, root = tmp_path / "program.py", tmp_path / "root"
    script.write_text(_MULTIPROCESSING, encoding="utf-8")
    assert _run(script, how, GPUCACHE_DIR=str(root)) == ""
    assert len(list(root.glob("v1/entries/*/*"))) == 1


# NVRTC itself may crash if a thread compiles while its process exits; so a stand-in compiles.
_DAEMONS = """
import sys, threading
from pathlib import Path
from gpucache.engine.stores import Stores
from gpucache.engine.lookup import get_or_build
from gpucache.store.directory import DirectoryStore
from tests.engine.conftest import Compiler, make_ready

store = DirectoryStore(Path(sys.argv[1]), writable=True)
ready = make_ready()
began = threading.Semaphore(0)

def build_for_ever(number):
    stores = Stores(user=store)
    while True:
        get_or_build(stores, ready, Compiler(f"by {number}"))
        began.release()
        for scanned in store.scan():
            store.remove(scanned, "a test")

for number in range(4):
    threading.Thread(target=build_for_ever, args=[number], daemon=True).start()
for _ in range(12):
    began.acquire()
"""


def test_daemon_threads_that_build_while_their_process_exits_spoil_nothing(tmp_path: Path) -> None:
    """The process exits silently, holds no lock, and leaves no half entry."""
    rounds, root = trials(4, 250), tmp_path / "root"
    store = DirectoryStore(root, writable=True)
    for _ in range(rounds):
        assert _run("-c", _DAEMONS, root) == ""
        found = list(store.scan())
        assert [one.damage for one in found] in ([], [None])
        for key in [one.key for one in found]:
            with store.single_flight(key, 0) as held:
                assert held
    tell("processes that exit while 4 daemon threads build", rounds, 0)


_FORK = """
import os, sys, threading
from pathlib import Path
from gpucache.engine.stores import Stores
from gpucache.engine.lookup import get_or_build
from gpucache.store.directory import DirectoryStore
from tests.engine.conftest import Compiler, make_ready

store = DirectoryStore(Path(sys.argv[1]), writable=True)
stores, ready = Stores(user=store), make_ready()
compiling, may_end, (reading, told) = threading.Event(), threading.Event(), os.pipe()

def meanwhile():
    compiling.set()
    may_end.wait()

thread = threading.Thread(target=get_or_build, args=(stores, ready, Compiler(meanwhile=meanwhile)))
thread.start()
compiling.wait()
child = os.fork()
if child == 0:
    own = Compiler()
    get_or_build(stores, make_ready(options=("-DOTHER",)), own)
    with store.single_flight(ready.key, 0) as held:
        os.write(told, b"held" if held else b"waits")
    get_or_build(stores, ready, own)
    os._exit(0 if own.asked == 1 else 1)
said = os.read(reading, 5)
may_end.set()
thread.join()
assert os.waitpid(child, 0)[1] == 0
assert said == b"waits"
"""


def test_a_child_forked_while_another_thread_compiles_waits_for_it_and_finds_what_it_built(
    tmp_path: Path,
) -> None:
    """The child holds no lock of its parent's, builds its own programs, and compiles nothing twice."""
    assert _run("-c", _FORK, tmp_path / "root") == ""
    assert left(tmp_path / "root") == []


_OTHER_VERSION = """
import sys
from pathlib import Path
from gpucache.caches.own import OwnCache
from gpucache.engine.evict import plan, run_evict
from gpucache.engine.evict import Limits
from gpucache.answers.entries import Location
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Found
from tests.faults.conftest import build_entry

store = DirectoryStore(Path(sys.argv[1]), writable=True)
if sys.argv[2] == "publish":
    store.publish(build_entry())
elif sys.argv[2] == "evict":
    cache = OwnCache(store, Location("gpucache", sys.argv[1], "a test", True, None))
    print(len(list(run_evict(cache, plan(cache.entries(), Limits(everything=True), 0)))), end="")
print(type(store.get(build_entry().key)).__name__, end="")
"""


@pytest.fixture
def other_version(tmp_path: Path) -> str:
    """A gpucache whose entries have another format, found before ours."""
    package = tmp_path / "other" / "gpucache"
    shutil.copytree(Path(gpucache.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, before, after in [
        ("store/format.py", "\nVERSION = 1\n", "\nVERSION = 2\n"),
        ("store/layout.py", 'VERSION_FOLDER = "v1"', 'VERSION_FOLDER = "v2"'),
    ]:
        text = (package / file).read_text(encoding="utf-8")
        assert before in text
        (package / file).write_text(text.replace(before, after), encoding="utf-8")
    return os.pathsep.join([str(package.parent), *filter(None, sys.path)])


def test_two_versions_on_one_root_leave_each_other_alone(tmp_path: Path, other_version: str) -> None:
    """Neither version finds, reports or removes the other's entries, and both go on."""
    root, entry = tmp_path / "root", build_entry()
    store = DirectoryStore(root, writable=True)

    def other(what: str) -> str:
        return _run("-P", "-c", _OTHER_VERSION, root, what, PYTHONPATH=other_version)

    assert other("publish") == "Found"
    assert store.get(entry.key) == Absent()
    assert (list(store.scan()), list(store.leftovers(2**62)), store.allocated_bytes()) == ([], [], 0)
    store.publish(entry)
    assert other("evict") == "1Absent"
    assert isinstance(store.get(entry.key), Found)
    assert other("publish") == "Found"
    for scanned in store.scan():
        assert store.remove(scanned, "a test") is None
    assert other("look") == "Found"
