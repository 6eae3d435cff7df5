"""How ``gpucache warm`` ends after a signal, next to another builder, or if nothing is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.children import run_text
from tests.patience import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from tests.cli.conftest import Run

Write = Callable[..., Path]
VECTOR = 'extern "C" __global__ void vector(float *a) { a[threadIdx.x] += 1; }\n'
_HOLD = """
import sys
from pathlib import Path
from gpucache.model import CacheKey
from gpucache.store.directory import DirectoryStore

with DirectoryStore(Path(sys.argv[1]), writable=True).single_flight(CacheKey(sys.argv[2]), 0) as holding:
    print(holding, flush=True)
    sys.stdin.read()
"""


@contextmanager
def _held(root: Path, key: str) -> Iterator[None]:
    """Another process that holds a key's lock until the end."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, root, key], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "True\n"
        yield
    finally:
        holder.communicate("", timeout=PATIENCE_S)


@pytest.mark.slow
def test_a_build_elsewhere_is_waited_for_but_not_for_ever(
    run: Run, root: Path, write: Write, nvrtc: str
) -> None:
    """If another process never releases the key's lock, the item is built anyway, and not poisoned."""
    source = write({"vector.cu": VECTOR}) / "vector.cu"
    (missing,) = run("--json", "warm", source, "--target", nvrtc, "--check").document["outcomes"]
    with _held(root, missing["key"]):
        answer = run("--json", "warm", source, "--target", nvrtc, "--timeout", "20")
    (row,) = answer.document["outcomes"]
    assert (answer.code, row["result"], row["key"]) == (0, "built", missing["key"])


@pytest.mark.parametrize(
    "name", ["SIGTERM", *(pytest.param(name, marks=pytest.mark.slow) for name in ("SIGINT", "SIGHUP"))]
)
def test_being_told_to_end_is_an_interrupt(
    root: Path, write: Write, nvrtc: str, endless: str, vendors: Path, tmp_path: Path, name: str
) -> None:
    """A signal to the whole group, as from a terminal, is exit 130, one document, and no directory left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    base = root / "v1"
    sources = write({"endless.cu": endless})
    child = subprocess.Popen(
        [sys.executable, "-m", "gpucache", "--root", root, "--json", "warm", sources, "--target", nvrtc],
        env={**os.environ, "OCL_ICD_VENDORS": str(vendors), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        # A worker takes the lock of the key just before it starts to compile.
        wait_until(lambda: any(base.glob("[0-9a-f]*.lock")))
        os.killpg(child.pid, getattr(signal, name))
        out, err = child.communicate(timeout=PATIENCE_S)
    finally:
        child.kill()
    assert (child.returncode, err) == (130, "")
    (row,) = json.loads(out)["outcomes"]
    assert row["result"] == "interrupted"
    assert not list(temporary.glob("gpucache-*"))


_STRUCK = """
import sys
class Strike:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
sys.meta_path.insert(0, Strike())
"""


@pytest.mark.parametrize(
    ("module", "program"),
    [
        *(
            (name, ["-m", "gpucache"])
            for name in ("click", "gpucache.cli.process", "gpucache.answers.console")
        ),
        *((name, [str(Path(sys.executable).with_name("gpucache"))]) for name in ("click", "gpucache.errors")),
    ],
)
def test_an_interrupt_while_modules_are_imported(tmp_path: Path, program: list[str], module: str) -> None:
    """Ctrl-C before the verb runs is exit 130 and one word, as at any other moment."""
    (tmp_path / "sitecustomize.py").write_text(_STRUCK.format(module=module), encoding="utf-8")
    _assert_interrupted(tmp_path, *program)


def _assert_interrupted(site: Path, *program: str) -> None:
    """With the modules of a directory the program ends with exit 130 and one word."""
    environ = {**os.environ, "PYTHONPATH": str(site), "GPUCACHE_DIR": str(site / "root")}
    done = run_text([sys.executable, *program, "inspect"], env=environ)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ngpucache: interrupted\n")


_STRUCK_WITHIN = """
import sys
class Field:
    def __set_name__(self, owner, name):
        raise KeyboardInterrupt
class Strike:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            {where}
sys.meta_path.insert(0, Strike())
"""


@pytest.mark.parametrize("module", ["gpucache.model", "gpucache.answers.inspect"])
@pytest.mark.parametrize(
    "where",
    ["type('Made', (), {'field': Field()})", "exec('raise KeyboardInterrupt')"],
    ids=["class", "exec"],
)
def test_an_interrupt_that_python_makes_something_else_of(tmp_path: Path, where: str, module: str) -> None:
    """Inside a class statement it becomes another error, in an exec another exit code; users see neither."""
    (tmp_path / "sitecustomize.py").write_text(
        _STRUCK_WITHIN.format(where=where, module=module), encoding="utf-8"
    )
    _assert_interrupted(tmp_path, "-m", "gpucache")


_BUSY = """
import atexit, sys, threading
from gpucache.cli import main
atexit.register(print, "finalised")
threading.Thread(target=threading.Event().wait, daemon=True).start()
sys.argv = ["gpucache", "inspect", "--no-such-option"]
sys.exit(main())
"""


def test_the_end_passes_python_by_while_a_thread_is_at_work() -> None:
    """A thread that still imports could crash Python's own end, and change the exit code."""
    done = run_text([sys.executable, "-c", _BUSY])
    assert (done.returncode, done.stdout) == (2, "")


def test_an_early_interrupt_is_one_document(tmp_path: Path) -> None:
    """With --json it is a document that says so."""
    (tmp_path / "sitecustomize.py").write_text(_STRUCK.format(module="click"), encoding="utf-8")
    done = run_text(
        [sys.executable, "-m", "gpucache", "inspect", "--json"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, json.loads(done.stdout)["error"]["message"]) == (130, "interrupted")


@pytest.mark.slow
def test_an_interrupted_bench_shows_what_it_has(tmp_path: Path) -> None:
    """Ctrl-C between the starts of a command is exit 130 with the pairs that were whole."""
    starts = tmp_path / "starts"
    app = (
        "import os, pathlib, signal, time; "
        "place = pathlib.Path(os.environ['OPTIX_CACHE_PATH']); place.mkdir(parents=True, exist_ok=True); "
        "(place / 'kernel').write_bytes(b'compiled'); "
        f"at = pathlib.Path({str(starts)!r}); number = at.stat().st_size if at.exists() else 0; "
        "at.write_bytes(b'x' * (number + 1)); "
        "number == 17 and (os.kill(os.getppid(), signal.SIGINT), time.sleep(60))"
    )
    command = [sys.executable, "-m", "gpucache", "--json", "bench", "--", sys.executable, "-c", app]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    (case,) = json.loads(done.stdout)["outcomes"]
    assert (done.returncode, done.stderr, case["interrupted"]) == (130, "", True)
    assert case["cold"]["runs"] == case["warm"]["runs"] == len(case["samples"]) / 2 > 1


@pytest.mark.parametrize("variable", ["GPUCACHE_READ_ONLY", "GPUCACHE_DISABLE"])
def test_warming_what_cannot_be_kept_is_refused(
    run: Run, root: Path, write: Write, nvrtc: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing may be stored warm compiles nothing: exit 5 with one sentence that names the variable."""
    monkeypatch.setenv(variable, "1")
    answer = run("warm", write({"vector.cu": VECTOR}), "--target", nvrtc)
    assert (answer.code, answer.out, answer.err.count("\n")) == (5, "", 1)
    assert answer.err.startswith(f"gpucache: {variable} is set") and "--check" in answer.err
    assert not root.exists()


@pytest.mark.parametrize("variable", ["GPUCACHE_READ_ONLY", "GPUCACHE_DISABLE"])
def test_what_cannot_be_kept_can_be_checked(
    run: Run, write: Write, nvrtc: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--check lists the misses even if nothing may be stored."""
    monkeypatch.setenv(variable, "1")
    answer = run("--json", "warm", write({"vector.cu": VECTOR}), "--target", nvrtc, "--check")
    (row,) = answer.document["outcomes"]
    assert (answer.code, row["result"]) == (3, "missing")


def test_a_private_cache_is_not_shared_by_half(run: Run, cache: Path, write: Write, nvrtc: str) -> None:
    """--shared into a root that others cannot enter is exit 5 with the remedy, and builds nothing."""
    before = sorted(cache.rglob("*.gpc"))
    answer = run("warm", write({"vector.cu": VECTOR}), "--target", nvrtc, "--shared")
    assert (answer.code, answer.out, answer.err.count("\n")) == (5, "", 1)
    assert f"the cache at {cache} is private already" in answer.err and "--root" in answer.err
    assert sorted(cache.rglob("*.gpc")) == before


def test_a_shared_cache_is_warmed_again(run: Run, write: Write, nvrtc: str) -> None:
    """A root that was shared from its beginning takes more programs with --shared."""
    assert run("warm", write({"a.cu": VECTOR}, "a"), "--target", nvrtc, "--shared").code == 0
    again = write({"b.cu": VECTOR.replace("1", "2")}, "b")
    assert run("warm", again, "--target", nvrtc, "--shared").code == 0
