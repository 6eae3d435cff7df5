"""A push beside a job: what the job compiles is in the store while it still runs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path

import pytest

from gpucache.answers.transfer import Moved, Pushed, PushResult
from gpucache.caches.interface import Cache
from gpucache.cli.push import _followed
from gpucache.engine.follow import Following
from gpucache.engine.selection import Selected
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.contracts.examples import EXAMPLES, open_example
from tests.patience import TIME_OUT_MS, wait_until

pytest.importorskip("watchfiles", reason="the extra watch is not installed")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux"),
    pytest.mark.slow,
]
GPUCACHE = (sys.executable, "-m", "gpucache")
COMPILE = """
import sys
from cuda.core import Program, ProgramOptions
source = 'extern "C" __global__ void scale(float *y) { y[threadIdx.x] *= %s; }' % sys.argv[1]
Program(source, "c++", ProgramOptions(arch="sm_90")).compile("cubin")
print(flush=True)
sys.stdin.read()
"""
"""Compiles, says so, and waits until its input ends."""


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    names = {"GPUCACHE_DIR": "root", "HOME": "home", "XDG_CACHE_HOME": "cache"}
    (tmp_path / "home").mkdir()
    places = {name: str(tmp_path / place) for name, place in names.items()}
    return {**os.environ, **places, TIMEOUT: TIME_OUT_MS}


def _job(store: Path, environ: Mapping[str, str], number: int = 2) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*GPUCACHE, "run", "--push", str(store), "--", sys.executable, "-c", COMPILE, str(number)],
        env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def _stored(store: Path, environ: Mapping[str, str]) -> int:
    done = run_text((*GPUCACHE, "--json", "inspect", store, "--list"), env=environ)
    return len(json.loads(done.stdout)["outcomes"]) if done.returncode == 0 else 0


def _followers(store: Path) -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0") if process.name.isdigit() else []
        except OSError:
            continue
        found += [int(process.name)] if b"--follow" in words and os.fsencode(store) in words else []
    return found


def test_an_entry_is_in_the_store_while_its_job_runs(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """The job waits until the test has seen it there."""
    store = tmp_path / "store"
    job = _job(store, environ)
    wait_until(lambda: _stored(store, environ) > 0)
    job.communicate("")
    assert job.returncode == 0 and not _followers(store)


def test_the_end_of_a_short_job_waits_for_the_rest(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """It ends before anything could be sent."""
    job = _job(tmp_path / "store", environ)
    job.communicate("")
    assert job.returncode == 0 and _stored(tmp_path / "store", environ) > 0
    catalogues = b"".join(one.read_bytes() for one in (tmp_path / "store" / "catalogues").iterdir())
    assert b'"system":"gpucache-rows"' in catalogues, "its first start elsewhere does not hit in C"


def test_what_a_killed_job_sent_stays(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """Neither its push nor run had any time; the next push goes on where they were."""
    store = tmp_path / "store"
    job = _job(store, environ)
    wait_until(lambda: _stored(store, environ) > 0)
    for process in (*_followers(store), job.pid):
        os.kill(process, signal.SIGKILL)
    job.communicate("")
    sent = _stored(store, environ)
    run_text((*GPUCACHE, "run", "--", sys.executable, "-c", COMPILE, "3"), env=environ, input="")
    done = run_text((*GPUCACHE, "--json", "push", store), env=environ)
    counts = json.loads(done.stdout)["summary"]
    assert counts["present"] == sent > 0 and counts["sent"] > 0


def test_a_push_ends_with_run_that_is_killed(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """It sends the rest first."""
    store = tmp_path / "store"
    job = _job(store, environ)
    wait_until(lambda: bool(_followers(store)))
    root = Path(environ["GPUCACHE_DIR"], "v1", "entries")
    wait_until(lambda: any(root.rglob("*.gpc")))
    job.kill()
    job.communicate("")
    wait_until(lambda: not _followers(store))
    assert _stored(store, environ) > 0


@pytest.mark.parametrize("asked", [False, True])
def test_entries_with_source_text_are_sent_if_asked(
    tmp_path: Path, environ: Mapping[str, str], asked: bool
) -> None:
    """Those of Triton, which a job adds."""
    place, store = tmp_path / "triton", tmp_path / "store"
    add = (
        "from pathlib import Path; from tests.contracts.examples import EXAMPLES; "
        f"EXAMPLES['triton'].add(Path({str(place)!r}), 1)"
    )
    place.mkdir()
    words = (*GPUCACHE, "run", "--push", store, *(("--sources",) if asked else ()), "--", sys.executable)
    done = run_text((*words, "-c", add), env={**environ, "TRITON_CACHE_DIR": str(place)})
    assert done.returncode == 0, done.stderr
    assert _stored(store, environ) == asked


def test_a_store_that_cannot_be_used_changes_no_job(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """Its directory is a file."""
    (tmp_path / "store").write_text("")
    job = _job(tmp_path / "store", environ)
    job.communicate("")
    assert job.returncode == 0


def test_nothing_is_drawn_over_what_a_command_prints(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """Its terminal gets no bar from the push beside it."""
    ours, theirs = os.openpty()
    words = (*GPUCACHE, "run", "--push", tmp_path / "store", "--", sys.executable, "-c", COMPILE, "2")
    with subprocess.Popen(words, env=environ, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs):
        os.close(theirs)
        shown = bytearray()
        with suppress(OSError):  # how a terminal without a process ends
            while data := os.read(ours, 1 << 16):
                shown += data
    os.close(ours)
    assert b"sent" in shown and b"\x1b[2K" not in shown and b"\r\x1b" not in shown


def test_a_push_that_cannot_begin_says_so_once(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """Its library is missing, say; the command is run all the same."""
    (tmp_path / "watchfiles.py").write_text("raise ImportError")
    lacking = {**environ, "PYTHONPATH": str(tmp_path)}
    done = run_text((*GPUCACHE, "run", "--push", tmp_path / "store", "--", "echo", "hi"), env=lacking)
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert len([line for line in done.stderr.splitlines() if "watchfiles" in line or "not all" in line]) == 1


def test_refused_entries_of_a_command_take_one_line(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """They may be of caches that have nothing to do with it."""
    EXAMPLES["pytools"].make(tmp_path / "made", 3)
    into = tmp_path / "cache" / "pytools"
    into.mkdir(parents=True)
    copy = ("cp", "-r", f"{tmp_path}/made/.", into)
    done = run_text((*GPUCACHE, "run", "--push", tmp_path / "store", "--", *copy), env=environ)
    assert [line for line in done.stderr.splitlines() if "pytools" in line and "--cache" in line]
    assert "generated code" not in done.stderr


def test_what_a_command_copies_at_once_is_sent(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """It has ended long before its push would have begun, and its entries are older than it."""
    other, store = tmp_path / "other", tmp_path / "store"
    made = {**environ, "GPUCACHE_DIR": str(other)}
    run_text((*GPUCACHE, "run", "--", sys.executable, "-c", COMPILE, "2"), env=made, input="")
    copy = ("cp", "-a", other, environ["GPUCACHE_DIR"])
    done = run_text((*GPUCACHE, "run", "--push", store, "--", *copy), env=environ)
    assert done.returncode == 0 and _stored(store, environ) > 0, done.stderr


def test_only_what_the_command_adds_is_sent(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """The entries from before are left to a push by hand."""
    store = tmp_path / "store"
    run_text((*GPUCACHE, "run", "--", sys.executable, "-c", COMPILE, "3"), env=environ, input="")
    _job(store, environ).communicate("")
    stored = _stored(store, environ)
    counts = json.loads(run_text((*GPUCACHE, "--json", "push", store), env=environ).stdout)["summary"]
    assert counts["present"] == stored > 0 and counts["sent"] > 0


def test_a_command_that_cannot_be_started_leaves_no_push(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """It ends before run does."""
    store, null = tmp_path / "store", subprocess.DEVNULL  # a pipe would wait for both
    words = (*GPUCACHE, "run", "--push", store, "--", tmp_path / "none")
    done = run_text(words, env=environ, capture_output=False, stdout=null, stderr=null)
    assert done.returncode == 127 and not _followers(store)


def test_modules_beside_a_command_are_not_imported(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """Its directory is not that of gpucache."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "click.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    words = (sys.executable, "-P", "-m", "gpucache", "run", "--push", tmp_path / "store", "--", "true")
    done = run_text(words, env=environ, cwd=tmp_path / "here")
    assert done.returncode == 0 and not (tmp_path / "sprung").exists()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    EXAMPLES["triton"].make(tmp_path, 3)
    return open_example("triton", tmp_path / EXAMPLES["triton"].place)


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """Interrupts as a command at a terminal has them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _told(some: Selected, result: PushResult) -> Iterator[Pushed]:
    for cache, entries in some:
        yield from (Pushed(Moved(cache.name, one.key), result) for one in entries)


def test_entries_that_are_passed_over_are_never_given(cache: Cache) -> None:
    """Neither when all that were given are given again."""
    following = Following([cache], lambda: True)
    following.pass_over()
    following.forget()
    assert not [*_told(following.unseen(), PushResult.SENT)]


def test_damaged_entries_are_given_at_the_end_alone(cache: Cache) -> None:
    """Until then their writer may be at work."""
    next(Path(cache.location().root).rglob("*.cubin")).unlink()
    following = Following([cache], lambda: True)
    batches = (following.unseen(), *following.batches())
    assert [len([*_told(some, PushResult.SENT)]) for some in batches] == [2, 1]


@pytest.mark.usefixtures("_interrupts")
def test_an_entry_that_failed_is_sent_with_the_next(cache: Cache) -> None:
    """The store lost it, say, and is asked to end after the first try."""

    def send(selected: Selected, more: Iterator[Selected]) -> Iterator[Pushed]:
        yield from _told(selected, PushResult.FAILED)
        signal.raise_signal(signal.SIGINT)
        for some in more:
            yield from _told(some, PushResult.SENT)

    outcomes = [one for one in _followed(send, [cache]) if isinstance(one, Pushed)]
    assert [one.result for one in outcomes] == [PushResult.SENT] * 3


@pytest.mark.usefixtures("_interrupts")
def test_a_second_interrupt_ends_a_push_that_sends_the_rest(cache: Cache) -> None:
    """It may take long."""

    def send(selected: Selected, more: Iterator[Selected]) -> Iterator[Pushed]:
        for some in chain([selected], more):
            signal.raise_signal(signal.SIGINT)
            yield from _told(some, PushResult.SENT)

    with pytest.raises(KeyboardInterrupt):
        list(_followed(send, [cache]))
