"""A push beside a job: what the job compiles is in the store while it still runs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.children import run_text
from tests.patience import wait_until

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
    return {**os.environ, **{name: str(tmp_path / place) for name, place in names.items()}}


def _job(store: Path, environ: Mapping[str, str], number: int = 2) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*GPUCACHE, "run", "--push", str(store), "--", sys.executable, "-c", COMPILE, str(number)],
        env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def _stored(store: Path, environ: Mapping[str, str]) -> int:
    done = run_text((*GPUCACHE, "--json", "inspect", store, "--list"), env=environ)
    return len(json.loads(done.stdout)["outcomes"]) if done.returncode == 0 else 0


def _followers(store: Path) -> list[int]:
    """The processes that push to a store."""
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
    wait_until(lambda: any(Path(environ["GPUCACHE_DIR"]).rglob("*.gpc")))
    job.kill()
    job.communicate("")
    wait_until(lambda: not _followers(store))
    assert _stored(store, environ) > 0


def test_a_store_that_cannot_be_used_changes_no_job(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """Its directory is a file."""
    (tmp_path / "store").write_text("")
    job = _job(tmp_path / "store", environ)
    job.communicate("")
    assert job.returncode == 0
