"""Environments in which hardly anything can be kept: every program runs, and the problem is logged once."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from gpucache.model import Entry
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Found
from tests.children import run_text
from tests.faults.conftest import build_entry
from tests.pocl import need_pocl

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="speaks of Linux's limits and mounts"),
]
MIB = 1 << 20

# Three programs in each of some threads that begin at once, as nothing may be said once for each of them.
_PROGRAM = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from gpucache.cuda import compile_program

KERNEL = 'extern "C" __global__ void show(int *out) { *out = %d; }'
together = threading.Barrier(THREADS)

def build(thread):
    together.wait()
    return [len(compile_program(KERNEL % value, target="sm_90").code) for value in range(3)]

with ThreadPoolExecutor(THREADS) as pool:
    sizes = list(pool.map(build, range(THREADS)))
assert sizes == [sizes[0]] * THREADS and min(sizes[0]) > 0
"""
Run = Callable[..., list[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the program with a root, under a shell that sets its limits; returns the library's log."""
    program = tmp_path / "program.py"

    def run(
        root: Path, setting: str = "true", level: str = "info", text: str = _PROGRAM, threads: int = 4
    ) -> list[str]:
        program.write_text(f"THREADS = {threads}\n{text}", encoding="ascii")
        done = (
            run_text(  # -u, as Python has an exit code of its own for what remains buffered for a full stderr
                ["sh", "-c", f'{setting}; exec "$0" "$@"', sys.executable, "-u", program],
                env={**os.environ, "GPUCACHE_DIR": str(root), "GPUCACHE_LOG": level},
            )
        )
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines()

    return run


def _told_once(said: list[str], *words: str) -> None:
    """One line of the log has these words, and no other has them."""
    told = [line for line in said if words[0] in line]
    assert len(told) == 1 and all(word in told[0] for word in words), said


def _fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


def test_a_full_disk(run: Run, mount: Callable[[str], Path]) -> None:
    """Every program is built, and one line names the root, the reason and the remedy."""
    disk = mount("size=256k")
    DirectoryStore(disk / "cache", writable=True).prepare()
    _fill(disk)
    _told_once(
        run(disk / "cache"), f"nothing could be kept in {disk}/cache: No space left on device; make room"
    )


def test_a_full_disk_under_the_cache_of_cuda_core(run: Run, mount: Callable[[str], Path]) -> None:
    """cuda.core's entries are not stored, and one line says so for all of them."""
    disk = mount("size=256k")
    DirectoryStore(disk / "cache", writable=True).prepare()
    _fill(disk)
    text = """
from gpucache.cuda import ProgramCache

cache = ProgramCache()
cache.update((str(number), b"code") for number in range(3))
assert len(cache) == 0
"""
    said = run(disk / "cache", text=text)
    _told_once(said, f"nothing could be kept in {disk}/cache: No space left on device; make room")


def test_a_read_only_disk(run: Run, mount: Callable[[str], Path]) -> None:
    """Existing entries are served, others are built, and one line says that nothing new is kept."""
    disk = mount(f"size={MIB}")
    store = DirectoryStore(disk / "cache", writable=True)
    store.publish(build_entry())
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert isinstance(store.get(build_entry().key), Found)
    _told_once(run(disk / "cache"), f"nothing could be kept in {disk}/cache: Read-only file system; mount it")


def _file(place: Path) -> Path:
    place.write_bytes(b"")
    return place


def _loop(place: Path) -> Path:
    place.symlink_to(place)
    return place


def _nothing(place: Path) -> Path:
    place.symlink_to(place.with_name("nowhere"))
    return place


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_file, "is not a directory"),
        (lambda place: _file(place) / "below", "is not a directory"),
        (_loop, "Too many levels of symbolic links; fix its links, or name your own"),
        (_nothing, "is a link to nothing; remove the link"),
        (lambda place: place / ("x" * 256), "File name too long; shorten its path, or name your own"),
        (lambda place: place.joinpath(*["y" * 200] * 21), "File name too long; shorten its path"),
    ],
)
def test_a_root_that_is_no_folder(run: Run, tmp_path: Path, make: Callable[[Path], Path], why: str) -> None:
    """Every program is built, and one line says what the root is instead, with the remedy."""
    root = make(tmp_path / "root")
    _told_once(run(root, level="warning"), f"the cache root {root}", why)


def test_a_root_that_is_swapped_for_a_link_while_it_is_open(tmp_path: Path) -> None:
    """Nothing is written through a link that replaces a directory below the root."""
    store = DirectoryStore(tmp_path / "root", writable=True)
    store.publish(build_entry("a"))
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("entries",):
        (store.root / "v1" / name).rename(tmp_path / name)
        (store.root / "v1" / name).symlink_to(outside)
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            store.publish(build_entry("b"))
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("streams", ["2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_closed_streams(run: Run, tmp_path: Path, streams: str) -> None:
    """A file opened in place of a standard stream gets no line of ours, and the cache is filled."""
    run(tmp_path / "root", f"exec {streams}")
    store = DirectoryStore(tmp_path / "root", writable=False)
    assert all(isinstance(store.check(scanned), Entry) for scanned in store.scan())
    assert len(list(store.scan())) == 3


@pytest.mark.parametrize("descriptors", [8, 12])
def test_few_descriptors(run: Run, tmp_path: Path, descriptors: int) -> None:
    """Every program is built; anything that is not kept is reported once."""
    root = tmp_path / "root"
    said = run(root, f"ulimit -n {descriptors}", level="warning", threads=1)  # NVRTC needs some too
    kept = len(list(root.glob("v1/entries/*/*.gpc")))
    assert len(said) == len(set(said)) and (kept == 3 or said)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_a_umask_that_takes_the_owners_rights(tmp_path: Path) -> None:
    """A command can enter its own directories, even without an administrator's capabilities."""
    bound = "setpriv --bounding-set=-dac_override,-dac_read_search" if os.geteuid() == 0 else ""
    line = f"umask 0777; {bound} {sys.executable} -m gpucache --json bench --runs 2 -- true"
    done = run_text(["sh", "-c", line], cwd=tmp_path)
    assert len(json.loads(done.stdout)["outcomes"]) == 1 and not done.stderr, done


def test_a_temporary_folder_without_the_right_to_execute(
    tmp_path: Path, mount: Callable[[str], Path], opencl_environment: Mapping[str, str]
) -> None:
    """PoCL, which would abort there, fails with the remedy and may be tried again."""
    need_pocl()
    disk = mount(f"size={32 * MIB},noexec")
    source = tmp_path / "show.cl"
    source.write_text("kernel void show(global int *out) { *out = 7; }", encoding="ascii")
    words = ["--json", "warm", str(source), "--local-size", "1", "--target", "opencl:pocl"]

    def warm(*more: str) -> dict[str, str]:
        done = run_text(
            [sys.executable, "-m", "gpucache", "--root", str(tmp_path / "root"), *words, *more],
            env={**opencl_environment, "TMPDIR": str(disk)},
        )
        (outcome,) = json.loads(done.stdout)["outcomes"]
        return dict(outcome)

    failed = warm()
    assert failed["result"] == "failed" and "is mounted noexec" in failed["reason"]
    assert "set TMPDIR" in failed["reason"]
    assert warm("--check")["result"] == "missing"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_an_entry_that_a_disk_hides_where_nothing_is_written(run: Run, tmp_path: Path) -> None:
    """It cannot be replaced there, so every start compiles anew: one line says why."""
    root = tmp_path / "root"
    run(root)
    hidden = "".join(f" -P {entry}" for entry in root.glob("v1/entries/*/*.gpc"))
    tracer = f"exec strace -f -qq -o /dev/null{hidden} -e inject=pread64:error=EIO"
    said = run(root, f'export GPUCACHE_READ_ONLY=1 GPUCACHE_MEMORY_BYTES=0; {tracer} "$0" "$@"', "warning")
    _told_once(said, f"in {root} the entry could not be read: Input/output error; check its disk or server")
