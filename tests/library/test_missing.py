"""A miss of the library: a thread explains, publishes and logs while the program goes on."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from gpucache.answers.lookup import Hit
from gpucache.engine.hits import find
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import NoEntry, Stores
from gpucache.library.missing import LATER, build, flush, reason
from gpucache.model import Artifact
from gpucache.store.directory import DirectoryStore
from gpucache.store.memory import MemoryStore
from tests.engine.conftest import Compiler, make_ready
from tests.faults.forking import forked
from tests.nvrtc import need_nvrtc
from tests.patience import PATIENCE_S

_READY = make_ready("kernel void show() {}")
_ENDING = """
import os, sys
import gpucache.cuda
from gpucache.library import missing

if sys.argv[1] == "os._exit":
    missing.LATER._running.acquire()
gpucache.cuda.compile_program('extern "C" __global__ void show(int *x) {}', target="compute_90")
if sys.argv[1] == "os._exit":
    os._exit(0)
"""


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(user=DirectoryStore(tmp_path / "cache", writable=True), memory=MemoryStore(1 << 20))


@contextmanager
def _waiting() -> Iterator[None]:
    """The thread does nothing until the block ends, and then all of it."""
    with LATER._running:
        yield
    flush()


def _built(stores: Stores, compiler: Compiler, ready: Prepared = _READY) -> Hit | Artifact:
    met = find(stores, ready)
    assert isinstance(met, NoEntry)
    return build(stores, ready, compiler, reason(stores, ready, met))


def _journaled(stores: Stores) -> list[object]:
    assert stores.user is not None
    return [record["verdict"] for record in stores.user.journal_tail(100)]


def test_a_program_goes_on_before_its_miss_is_explained_and_published(stores: Stores) -> None:
    """Until then its key is locked; afterwards journal and cache have it."""
    assert stores.user is not None
    with _waiting():
        assert isinstance(_built(stores, Compiler()), Artifact)
        assert not stores.user.contains(_READY.key)
        assert _journaled(stores) == []
        with stores.user.single_flight(_READY.key, 0) as held:
            assert not held
    assert stores.user.contains(_READY.key)
    assert _journaled(stores) == ["never-built"]
    with stores.user.single_flight(_READY.key, 0) as held:
        assert held


def test_a_build_that_asks_the_server_leaves_the_lock_to_it(stores: Stores) -> None:
    """The server would wait for the lock otherwise, and the program for the server."""
    assert stores.user is not None
    met = find(stores, _READY)
    assert isinstance(met, NoEntry)
    with _waiting():
        build(stores._replace(asks=True), _READY, Compiler(), reason(stores, _READY, met))
        with stores.user.single_flight(_READY.key, 0) as held:
            assert held
    assert stores.user.contains(_READY.key)


def test_a_program_may_remove_its_headers_as_soon_as_its_build_returns(
    stores: Stores, tmp_path: Path
) -> None:
    """The headers are checked for changes before the build returns."""
    assert stores.user is not None
    (tmp_path / "x.h").write_text("#define V 1\n", encoding="ascii")
    ready = make_ready('#include "x.h"\nkernel void show() {}', include_dirs=(tmp_path,))
    with _waiting():
        _built(stores, Compiler(), ready)
        (tmp_path / "x.h").unlink()
    assert stores.user.contains(ready.key)


def test_a_build_before_the_publication_of_the_same_is_a_hit_in_memory(stores: Stores) -> None:
    """It waits for the publication, and compiles nothing."""
    compiler = Compiler()
    with ThreadPoolExecutor(1) as pool:
        with _waiting():
            _built(stores, compiler)
            second = pool.submit(_built, stores, compiler)
        hit = second.result(PATIENCE_S)
    assert isinstance(hit, Hit)
    assert (hit.store, compiler.asked) == ("memory", 1)


def test_lines_come_in_the_order_of_the_builds(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    """Each miss is explained by the builds before it."""
    caplog.set_level(logging.INFO, "gpucache")
    with _waiting():
        for number in range(3):
            _built(stores, Compiler(), make_ready(options=(f"-DVALUE={number}",)))
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert ["the define VALUE: 0 -> 1" in lines[1], "the define VALUE: 1 -> 2" in lines[2]] == [True, True]


def test_trouble_after_the_compile_is_logged_once(
    stores: Stores, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs run, and one line says why neither is kept."""

    def fail(*_: object) -> int:
        raise RuntimeError("of a kind that nobody expects")

    monkeypatch.setattr(DirectoryStore, "publish", fail)
    assert all(isinstance(_built(stores, Compiler()), Artifact) for _ in range(2))
    flush()
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == ["programs are compiled uncached: show: of a kind that nobody expects"]


def test_a_fork_leaves_the_publication_to_the_parent(stores: Stores) -> None:
    """The child has nothing to wait for and frees no lock; the parent publishes once."""
    assert stores.user is not None
    store = stores.user

    def child() -> None:
        flush()
        assert isinstance(_built(stores, Compiler(), make_ready("kernel void other() {}")), Artifact)
        flush()
        with store.single_flight(_READY.key, 0) as held:
            assert not held

    with _waiting():
        _built(stores, Compiler())
        assert os.waitpid(forked(child), 0)[1] == 0
    assert [event.key for event in store.history.events("show")].count(str(_READY.key)) == 1


def test_work_may_add_more_than_waits_at_most(stores: Stores) -> None:
    """A handler of the log may compile: the working thread does not wait for itself."""
    done: list[int] = []

    def work() -> None:
        for number in range(40):
            LATER.add(stores, _READY, partial(done.append, number))

    LATER.add(stores, _READY, work)
    flush()
    assert done == list(range(40))


def test_a_fork_waits_for_the_work_that_runs(stores: Stores) -> None:
    """So its child has no lock or import of the thread's half done."""
    running, done = Event(), []

    def work() -> None:
        running.set()
        done.append(sum(range(100_000)))

    LATER.add(stores, _READY, work)
    running.wait()
    assert os.waitpid(forked(lambda: done[0]), 0)[1] == 0
    flush()


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "entries"), [("return", 1), ("os._exit", 0)])
def test_an_exit_waits_for_the_publication(tmp_path: Path, ending: str, entries: int) -> None:
    """``os._exit`` loses the entry, and leaves no lock that blocks a process."""
    need_nvrtc()
    root = tmp_path / "cache"
    command = [sys.executable, "-c", _ENDING]
    environment = {**os.environ, "GPUCACHE_DIR": str(root)}
    subprocess.run([*command, ending], env=environment, check=True, timeout=PATIENCE_S)
    assert len(list(root.glob("v1/entries/*/*"))) == entries
    subprocess.run([*command, "return"], env=environment, check=True, timeout=PATIENCE_S)
    assert len(list(root.glob("v1/entries/*/*"))) == 1
