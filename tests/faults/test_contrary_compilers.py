"""Compilers that crash, hang, exit, fork or return rubbish: each costs only its item, and leaves no process.

The compiler is a stand-in that is built here with the C compiler, as no real one does such things on demand.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from gpucache.engine.workers.capacity import turn_count
from tests.children import has_ended, run_text
from tests.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

TARGET = "opencl:stand-in/contrary"
ENDS = {
    "segfault": "its compiler process died of SIGSEGV, twice",
    "abort": "its compiler process died of SIGABRT, twice",
    "overflow": "its compiler process died of SIGSEGV, twice",
    "leave": "its compiler process ended with status 0, twice",
    "leave-at-once": "its compiler process ended with status 0, twice",
    "close": "its compiler process ended with status 1",
    "fork-and-crash": "its compiler process died of SIGSEGV, twice",
    "fail": "does not compile",
    "empty": "the driver compiled the program but returned no binary",
    "garbage": "the compiler's result is damaged",
}
ENDLESS = ("hang", "deaf", "spin", "fork-and-hang")
BUILT = ("fork", "print", "talk", "good", "better")


@dataclass(slots=True)
class Contrary:
    """Runs of warm with the stand-in, and its log of its builds."""

    place: Path
    environ: dict[str, str]
    counted: Counter[str] = field(default_factory=Counter)

    @property
    def log(self) -> Path:
        return self.place / "log"

    def command(self, *words: object) -> list[str]:
        own = ("--root", self.place / "root", "--json", "warm", "--target", TARGET)
        return [sys.executable, "-m", "gpucache", *map(str, (*own, *words))]

    def sources(self, names: Sequence[str]) -> list[Path]:
        """A source for each name, which makes the compiler behave by that name."""
        paths = [self.place / f"{name}.cl" for name in names]
        for path, name in zip(paths, names, strict=True):
            told = "" if name in ("good", "better") else f"// behave: {name}\n"
            path.write_text(f"{told}kernel void k() {{}} // {name}\n", encoding="ascii")
        return paths

    def warm(self, names: Sequence[str], *words: object, **more: str) -> dict[str, Any]:
        return self.run(*self.sources(names), *words, **more)

    def run(self, *words: object, **more: str) -> dict[str, Any]:
        done = run_text(self.command(*words), env={**self.environ, **more})
        assert done.stderr == ""
        return {Path(row["program"]).stem: row for row in json.loads(done.stdout)["outcomes"]}

    def processes(self) -> list[int]:
        """Every process that built something, and their children."""
        return [int(line.split()[0]) for line in self._lines()]

    def builds(self) -> Counter[str]:
        """How often each behaviour was built since the last call."""
        now = Counter(line.split()[1] for line in self._lines())
        new, self.counted = now - self.counted, now
        del new["child"]
        return new

    def _lines(self) -> list[str]:
        return self.log.read_text(encoding="ascii").splitlines() if self.log.exists() else []


def _contrary(place: Path, vendors: Path) -> Contrary:
    place.mkdir()
    temporary = place / "temporary"
    temporary.mkdir()
    told: Mapping[str, object] = {
        "OCL_ICD_VENDORS": vendors,
        "DRIVER_LOG": place / "log",
        "TMPDIR": temporary,
    }
    return Contrary(place, {**os.environ, **{name: str(value) for name, value in told.items()}})


@pytest.fixture
def contrary_runs(tmp_path: Path, contrary: Path) -> Contrary:
    return _contrary(tmp_path / "contrary", contrary)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, contrary: Path) -> tuple[Contrary, dict[str, Any]]:
    """A run over every behaviour, and one with a limit over the endless ones; the outcome of each."""
    runs = _contrary(tmp_path_factory.mktemp("whole") / "contrary", contrary)
    outcomes = runs.warm([*ENDS, *BUILT], "--jobs", 2)
    return runs, {**outcomes, **runs.warm(ENDLESS, "--jobs", 4, "--timeout", 1)}


@pytest.mark.parametrize("name", ENDS)
def test_an_item_fails_with_its_own_reason(whole: tuple[Contrary, dict[str, Any]], name: str) -> None:
    """Whatever a compiler does instead of compiling, its item's reason says how it ended."""
    _, outcomes = whole
    assert outcomes[name]["result"] == "failed" and ENDS[name] in outcomes[name]["reason"]


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_item_fails_at_its_limit(whole: tuple[Contrary, dict[str, Any]], name: str) -> None:
    """A compiler that hangs is killed at the time limit, even if it ignores signals or has a child."""
    _, outcomes = whole
    assert outcomes[name]["result"] == "failed"
    assert "it did not end within 1 s, twice" in outcomes[name]["reason"]


def test_the_others_are_built(whole: tuple[Contrary, dict[str, Any]]) -> None:
    """Programs next to failing ones are built, and so are those of a noisy or forking compiler."""
    _, outcomes = whole
    assert {name: outcomes[name]["result"] for name in BUILT} == dict.fromkeys(BUILT, "built")


def test_a_log_is_cut(contrary_runs: Contrary) -> None:
    """However long a compiler's log, a report of it has at most 64 KiB, as an entry does."""
    talks, refuses = contrary_runs.sources(["talk", "refuse"])
    refuses.write_text("// behave: talk\n// behave: fail\n", encoding="ascii")
    outcomes = contrary_runs.run(talks, refuses)
    told = {name: (row["result"], len(row["log"])) for name, row in outcomes.items()}
    assert told == {"talk": ("built", 65536), "refuse": ("failed", 65536)}


def test_no_process_of_a_compiler_lives_on(whole: tuple[Contrary, dict[str, Any]]) -> None:
    """A compiler's children are gone with the run, whether its own process ended well, crashed or hung."""
    runs, _ = whole
    assert "child" in runs.log.read_text(encoding="ascii")
    for process in runs.processes():
        wait_until(lambda: has_ended(process))  # noqa: B023 - called at once


def test_nothing_is_paid_for_twice(whole: tuple[Contrary, dict[str, Any]]) -> None:
    """A second run does not retry a compile that crashed; another driver gets its chance."""
    runs, _ = whole
    deadly = [name for name, reason in ENDS.items() if "twice" in reason]
    runs.builds()
    again = runs.warm([*deadly, "hang"], "--timeout", 1)
    assert {row["result"] for row in again.values()} == {"poisoned"} and not runs.builds()
    newer = runs.warm(["abort", "segfault"], CL_DRIVER_VERSION="2.0")
    assert {row["result"] for row in newer.values()} == {"failed"}
    assert runs.builds() == {"abort": 2, "segfault": 2}


def test_compilers_of_many_runs_take_turns(contrary_runs: Contrary) -> None:
    """However many runs are started together, the number of compilers at a time is bounded."""
    count = turn_count() + 3
    (source,) = contrary_runs.sources(["linger"])
    runs = []
    for number in range(count):
        command = contrary_runs.command(source, "-D", f"N={number}")
        runs.append(subprocess.Popen(command, env=contrary_runs.environ, stdout=subprocess.DEVNULL))
    assert [run.wait(PATIENCE_S) for run in runs] == [0] * count
    words = contrary_runs.log.read_text(encoding="ascii").split()[1::2]
    steps = [{"begin": 1, "end": -1}.get(word, 0) for word in words]
    assert words.count("begin") == count
    assert max(accumulate(steps)) <= turn_count()


def test_a_killed_run_leaves_no_compiler(contrary_runs: Contrary) -> None:
    """If warm is killed without a cleanup, its workers and their compilers' children end too."""
    command = contrary_runs.command(*contrary_runs.sources(["fork-and-hang", "deaf"]), "--jobs", 2)
    child = subprocess.Popen(command, env=contrary_runs.environ, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(contrary_runs.processes()) == 3)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    for process in contrary_runs.processes():
        wait_until(lambda: has_ended(process))  # noqa: B023 - called at once
