"""``python -m tests.gpu`` on a machine without a GPU, and its parts with commands that need none."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.children import run_text
from tests.gpu import no_gpu
from tests.gpu.__main__ import Exit, Outcome, Part, Row, Run, _bench, _compared, _tests, measured
from tests.nvrtc import need_nvrtc

_CHECKOUT = Path(__file__).parents[2]
_ENDS = """
import pytest
def test_one(): pass
def test_two(): pytest.skip("it needs more")
def test_bad(): assert 1 == 2
"""


def _main(*words: str) -> subprocess.CompletedProcess[str]:
    return run_text([sys.executable, "-m", "tests.gpu", *words], cwd=_CHECKOUT)


def _rows(tmp_path: Path, *parts: Part, ends_in_s: float = 600) -> list[Row]:
    run = Run(time.monotonic() + ends_in_s, tmp_path / "rows.json", ["no GPU"])
    run.all(parts, 2)
    written = json.loads((tmp_path / "rows.json").read_text())["outcomes"]
    assert [row["outcome"] for row in written] == [row.outcome for row in run.rows]
    assert (run.exit_code() is Exit.FAILURES) == any(row.outcome is Outcome.FAILED for row in run.rows)
    return run.rows


@pytest.mark.slow
def test_every_test_marked_gpu_and_every_benchmark_is_listed() -> None:
    """The list needs no GPU, and nothing is run."""
    done = _main("--collect-only")
    assert done.returncode == Exit.DONE, done.stderr
    marked = run_text([sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "gpu"], cwd=_CHECKOUT)
    functions = {line.partition("[")[0] for line in marked.stdout.splitlines() if "::" in line}
    benchmarks = {part.name for part in measured("cuda:GPU")}
    listed = {line.partition(" s  ")[2].partition("  would be")[0] for line in done.stdout.splitlines()}
    assert listed == functions | benchmarks


def test_a_machine_without_a_gpu_is_told() -> None:
    """In one sentence, with gpucache's exit code for that."""
    if not no_gpu():
        pytest.skip("a GPU is here")
    done = _main()
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == f"Nothing was run: {no_gpu()}.\n"


def test_the_cases_of_a_test_are_one_row(tmp_path: Path) -> None:
    """A failure is shown with its output, a skip with its reason."""
    file = tmp_path / "test_ends.py"
    file.write_text(_ENDS)
    begin = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", "FILE")
    parts = [
        Part(name, (*begin, f"{file}{name}"), 60, _tests)
        for name in ("::test_one", "::test_two", "::test_bad", "", "::no")
    ]
    rows = {row.name: row for row in _rows(tmp_path, *parts)}
    assert (rows["::test_one"].outcome, rows["::test_one"].reason) == (Outcome.PASSED, "")
    assert (rows["::test_two"].outcome, rows["::test_two"].reason) == (
        Outcome.SKIPPED,
        "1 of 1: it needs more",
    )
    assert rows["::test_bad"].outcome is rows[""].outcome is rows["::no"].outcome is Outcome.FAILED
    assert "assert 1 == 2" in rows["::test_bad"].output and rows[""].reason.startswith("1 of 3: ")


def test_a_part_that_hangs_or_does_not_fit_is_in_the_table(tmp_path: Path) -> None:
    """One beyond its own limit failed; one beyond the overall limit was not run."""
    waits = (sys.executable, "-c", "import time; time.sleep(900)")
    assert _rows(tmp_path, Part("hangs", waits, 0.2, _tests))[0].outcome is Outcome.FAILED
    cut, late = _rows(
        tmp_path, Part("cut", waits, 900, _tests, alone=True), Part("late", waits, 900, _tests, alone=True),
        ends_in_s=6,
    )  # fmt: skip
    assert (cut.outcome, cut.reason) == (Outcome.NOT_RUN, "no time left after 6 s of it")
    assert (late.outcome, late.reason) == (Outcome.NOT_RUN, "no time left")


@pytest.mark.slow
def test_benchmarks_are_rows_with_ratios(tmp_path: Path) -> None:
    """Of ``gpucache bench`` for a target without a device, and of a benchmark with launches."""
    need_nvrtc()
    example = _CHECKOUT / "gpucache/examples/vector_add.cu"
    command = (
        sys.executable,
        "-m",
        "tests.benchmarks",
        "launch",
        "--small",
        "--rounds",
        "2",
        "--json",
        "FILE",
    )
    rows = _rows(
        tmp_path,
        _bench("vector_add.cu", example, "--target", "cuda:sm_90", "--against", "cuda.core"),
        _bench("nothing", tmp_path / "nothing.cu"),
        _bench("a command", "--", sys.executable, "-c", "raise SystemExit('no device')"),
        Part("launch", command, 600, _compared, alone=True),
    )
    told = {row.name: (row.outcome, row.ratio.partition(" ")[0]) for row in rows}
    assert told["gpucache bench vector_add.cu"] == (Outcome.PASSED, "cold/warm")
    assert told["gpucache bench vector_add.cu, against cuda.core"] == (Outcome.PASSED, "cold/warm")
    assert told["gpucache bench nothing"] == (Outcome.FAILED, "")
    assert next(row for row in rows if row.name.endswith("a command")).reason.endswith("no device")
    others = [row for row in rows if row.name.startswith("A start with a launch")]
    assert others and all(row.ratio or (row.outcome is Outcome.SKIPPED and row.reason) for row in others)
