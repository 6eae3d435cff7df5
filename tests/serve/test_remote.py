"""GPUCACHE_REMOTE below ``gpucache run``: unmodified programs hit what another machine compiled."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.nvrtc import need_nvrtc
from tests.remote.fleet import PATIENT, Fleet
from tests.remote.servers import Silent
from tests.serve.conftest import Done

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")]
_NVRTC = Path(__file__).with_name("nvrtc_program.py")
Program = Callable[..., Done]


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(tmp_path)
    fleet.others()
    return fleet


@pytest.fixture(name="start", params=["opencl", "nvrtc"])
def _start(request: pytest.FixtureRequest, program: Program, run: Program, fleet: Fleet) -> Program:
    """Run a program below ``run`` on a machine of the fleet."""

    def call(root: str, **settings: Any) -> Done:
        variables = {name: str(value) for name, value in settings.items()}
        ours = {"GPUCACHE_DIR": str(fleet.place / root), "GPUCACHE_REMOTE": str(fleet.store), **PATIENT}
        variables = ours | variables
        if request.param == "opencl":
            return program("Intel", 2, **variables)
        need_nvrtc()
        return run(sys.executable, _NVRTC, "core", "plain", **variables)

    return call


def test_what_one_machine_compiled_is_served_on_the_next(start: Program, fleet: Fleet) -> None:
    """It is reported as remote, stored, and a local hit the next time; the output is the same."""
    made = start("maker", **fleet.signing(), **fleet.trusting())
    assert set(made.results) == {"kept"}
    count = len(fleet.objects())
    assert count == len(fleet.entries("maker")) > 0
    fetched = start("next", **fleet.trusting(), GPUCACHE_LOG="info")
    assert (fetched.out, set(fetched.results)) == (made.out, {"hit"})
    assert " in remote" in fetched.err
    assert len(fleet.entries("next")) == count
    assert (fleet.place / "next" / "v1" / "records.row").is_file()
    local = start("next", GPUCACHE_REMOTE="s3://nowhere/at-all")
    assert (local.out, set(local.results)) == (made.out, {"hit"})
    assert "GPUCACHE_REMOTE" not in local.err


def test_a_machine_that_only_reads_keeps_nothing(start: Program, fleet: Fleet) -> None:
    """Each run fetches, and is served."""
    made = start("maker", **fleet.signing(), **fleet.trusting())
    for _ in range(2):
        fetched = start("next", **fleet.trusting(), GPUCACHE_READ_ONLY="1")
        assert (fetched.out, set(fetched.results)) == (made.out, {"hit"})
    assert fleet.entries("next") == []


def test_a_remote_hit_is_one_where_hits_are_required(start: Program, fleet: Fleet) -> None:
    """Without it the build fails, as without a store."""
    made = start("maker", **fleet.signing(), **fleet.trusting())
    required = start("next", **fleet.trusting(), GPUCACHE_REQUIRE="1")
    assert (required.out, set(required.results)) == (made.out, {"hit"})
    assert set(start("other", **fleet.trusting("third"), GPUCACHE_REQUIRE="1").results) == {"refused"}


def test_a_store_that_does_not_answer_costs_no_build(start: Program, fleet: Fleet) -> None:
    """The program compiles and its result is stored; one line says why the store is not used."""
    alone = start("alone", GPUCACHE_REMOTE="")
    with Silent() as silent:
        settings = {"GPUCACHE_REMOTE": f"http://{silent.address}", "GPUCACHE_REMOTE_TIMEOUT_MS": "300"}
        done = start("next", **settings, **fleet.trusting())
        assert (done.out, done.results) == (alone.out, alone.results)
        assert done.err.count("GPUCACHE_REMOTE is not asked for a minute") == 1
        assert len(silent.connections) <= 4  # the keys of one request
