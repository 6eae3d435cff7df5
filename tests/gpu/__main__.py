"""Run the tests that need a GPU and the benchmarks that launch on one, and print one table; see ``--help``.

A part is its own process with a limit of time, so that a crash or a hang costs that part alone. A part
that does not fit into the overall limit is in the table, too. Nothing is installed or downloaded.
"""

import argparse
import io
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from enum import IntEnum, StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from tests.gpu import no_gpu, no_nvidia_opencl, programs

_CHECKOUT = Path(__file__).parents[2]
_LIMIT_S = 570.0
_TEST_S, _BENCH_S = 150.0, 120.0
_LEAST_S = 5.0
"""With less time left no part begins."""
_SHOWN_LINES = 40


class Exit(IntEnum):
    """Gpucache's exit codes."""

    DONE = 0
    FAILURES = 3
    NO_DEVICE = 4
    INTERRUPTED = 130


class Outcome(StrEnum):
    """How a test or a case of a benchmark ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table."""

    name: str
    outcome: Outcome
    seconds: float = 0.0
    ratio: str = ""
    reason: str = ""
    output: str = ""
    """The end of a failed part's output."""


class Ended(NamedTuple):
    """A command that has ended, and the file that it should have written."""

    code: int
    output: str
    errors: str
    file: Path


@dataclass(frozen=True, slots=True)
class Part:
    """A command with a time limit; ``read`` makes rows of its results."""

    name: str
    command: tuple[str, ...]
    """``FILE`` in it is a file that it writes, ``PROGRAM`` one with ``text``."""
    limit_s: float
    read: Callable[["Part", Ended], Iterator[Row]]
    text: str = ""
    alone: bool = False
    """It measures, so nothing runs next to it."""
    lacking: Callable[[], str] = str
    """Why it cannot run on this machine; empty if it can."""


def collected() -> list[Part]:
    """A part for each test function with cases marked ``gpu``."""
    files = [file for file in sorted(_CHECKOUT.glob("tests/**/test_*.py")) if "mark.gpu" in file.read_text()]
    found = _Collected()
    with redirect_stdout(io.StringIO()) as told:
        words = ["--collect-only", "-q", "-m", "gpu", "-p", "no:cacheprovider", *map(str, files)]
        code = pytest.main(words, plugins=[found])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(told.getvalue())
    parts = [Part(name, (), 0, _tests, lacking=partial(str, why)) for name, why in found.skipped.items()]
    words = ["-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "--junitxml", "FILE"]
    return parts + [Part(name, (sys.executable, *words, name), _TEST_S, _tests) for name in found.functions]


class _Collected:
    """The tests that pytest would run, as a plugin."""

    def __init__(self) -> None:
        self.functions: dict[str, None] = {}
        self.skipped: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.functions = dict.fromkeys(item.nodeid.partition("[")[0] for item in session.items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skipped[report.nodeid] = report.longrepr[2].removeprefix("Skipped: ")


def measured(gpu: str) -> list[Part]:
    """The benchmarks that load or launch on a GPU, whose target of CUDA is given."""
    examples = _CHECKOUT / "gpucache/examples"
    opencl = ("--target", "opencl:nvidia")
    options = ("-I", examples / "include", "--option=-std=c++17")
    named = [f"--name-expression=price<{kind}, 52>" for kind in ("Call", "Asian", "Lookback")]
    launched = "python -m tests.benchmarks launch"
    return [
        _bench("vector_add.cu", examples / "vector_add.cu", "--target", gpu, "--against", "cuda.core"),
        _bench("options.cu", examples / "options.cu", "--target", gpu, *options, *named),
        _bench("fft.cl", examples / "fft.cl", "--local-size", "64", *opencl, lacking=no_nvidia_opencl),
        _bench("gemm.cl", examples / "gemm.cl", "--local-size", "8x8", *opencl, lacking=no_nvidia_opencl),
        _bench("--checks", "--checks", *opencl, lacking=no_nvidia_opencl),
        _bench("-- a program of ours", "--", *_PROGRAM, "launch", text=programs.CUDA["compile_program"]),
        _bench("-- a program of CuPy", "--", *_PROGRAM, text=programs.CUPY, lacking=_need("cupy")),
        _bench(
            "-- a program of Triton", "--", *_PROGRAM, text=programs.TRITON, lacking=_need("triton", "torch")
        ),
        _bench("-- a program of JAX", "--", *_PROGRAM, text=programs.JAX, lacking=_need("jax")),
        Part(
            launched,
            (sys.executable, *launched.split()[1:], "--rounds", _RUNS, "--json", "FILE"),
            _BENCH_S,
            _compared,
            alone=True,
        ),
    ]


_RUNS = "5"
_PROGRAM = (sys.executable, "PROGRAM")


def _bench(name: str, *words: object, text: str = "", lacking: Callable[[], str] = str) -> Part:
    command = (sys.executable, "-m", "gpucache", "--json", "bench", "--runs", _RUNS, *map(str, words))
    return Part(f"gpucache bench {name}", command, _BENCH_S, _benched, text, alone=True, lacking=lacking)


def _need(*modules: str) -> Callable[[], str]:
    """A function that returns which of some modules are not installed; they are not imported."""
    return lambda: ", ".join(f"{one} is not installed" for one in modules if find_spec(one) is None)


def _tests(part: Part, ended: Ended) -> Iterator[Row]:
    """One row for all cases of a test function."""
    cases = list(ElementTree.parse(ended.file).iter("testcase")) if ended.file.is_file() else []
    failed = [one for case in cases for kind in ("failure", "error") for one in case.iter(kind)]
    skipped = [one for case in cases for one in case.iter("skipped")]
    if failed or not cases or ended.code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        said = failed[0].get("message", "") if failed else f"pytest ended with {ended.code}"
        count = f"{len(failed)} of {len(cases)}: " if len(cases) > 1 else ""
        yield _failed(part, ended, count + said)
    else:
        why = f"{len(skipped)} of {len(cases)}: {skipped[0].get('message', '')}" if skipped else ""
        yield Row(part.name, Outcome.SKIPPED if len(skipped) == len(cases) else Outcome.PASSED, reason=why)


def _benched(part: Part, ended: Ended) -> Iterator[Row]:
    """A row for each case of ``gpucache bench``, and one for each peer; of checks one for each kernel."""
    try:
        cases = json.loads(ended.output)["outcomes"]
    except (ValueError, KeyError):
        cases = []
    failed = "; ".join(case["reason"] for case in cases if case.get("verdict") == "failed")
    if ended.code or not cases:
        yield _failed(part, ended._replace(output=failed), failed or f"it ended with {ended.code}")
        return
    for case in cases:
        name = part.name if len(cases) == 1 else f"{part.name}: {case.get('kernel') or case['program']}"
        if "kernel" in case:
            ratio = " and ".join(f"{_ratio(case[mode])} ({mode})" for mode in ("sync", "async"))
            yield Row(name, Outcome.PASSED, ratio=ratio, reason=case["error"])
            continue
        said = "; ".join(filter(None, [case["reason"], *case["notes"]]))
        yield Row(name, Outcome.PASSED, ratio=f"cold/warm {_ratio(case['ratio'])}", reason=said)
        for arm in case["arms"]:
            ratio = f"cold/warm {_ratio(arm['ratio'])}"
            yield Row(f"{name}, against {arm['arm']}", Outcome.PASSED, ratio=ratio, reason=arm["reason"])


def _compared(part: Part, ended: Ended) -> Iterator[Row]:
    """A row for each side next to ours."""
    if ended.code or not ended.file.is_file():
        yield _failed(part, ended, f"it ended with {ended.code}")
        return
    for one in json.loads(ended.file.read_text())["comparisons"]:
        for peer, why in one["absent"].items():
            yield Row(f"{one['title']}: {peer}", Outcome.SKIPPED, reason=why)
        for side in one["sides"][1:]:
            ratio = f"ours/its {_ratio(side['ours_to_it_wall'])}"
            yield Row(f"{one['title']}: {side['name']}", Outcome.PASSED, ratio=ratio)


def _ratio(told: Mapping[str, float] | None) -> str:
    return "-" if told is None else "{median:.2f}x ({low:.2f}x to {high:.2f}x)".format(**told)


def _failed(part: Part, ended: Ended, why: str) -> Row:
    lines = [*ended.output.splitlines(), *ended.errors.splitlines()][-_SHOWN_LINES:]
    return Row(part.name, Outcome.FAILED, reason=" ".join(why.split())[:200], output="\n".join(lines))


class Run:
    """Parts that run until a time, and their rows."""

    def __init__(self, ends: float, file: Path | None, devices: Sequence[str]) -> None:
        self.rows: list[Row] = []
        self._ends, self._file, self._devices = ends, file, devices
        self._began = time.monotonic()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._left: dict[int, Part] = {}
        self._stopped = False
        self._lock = Lock()

    def all(self, parts: Sequence[Part], jobs: int) -> None:
        """Run the tests side by side, then the benchmarks one after the other; each has a row afterwards."""
        self._left = {id(part): part for part in parts}
        try:
            for alone, workers in ((False, jobs), (True, 1)):
                with ThreadPoolExecutor(workers) as pool:
                    try:
                        list(pool.map(self._one, [part for part in parts if part.alone is alone]))
                    except BaseException:
                        self._stop()
                        raise
        finally:
            self.rows += [
                Row(part.name, Outcome.NOT_RUN, reason="interrupted") for part in self._left.values()
            ]
            self._write()

    def _stop(self) -> None:
        self._stopped = True
        with self._lock:
            for child in self._children:
                _kill(child)

    def _one(self, part: Part) -> None:
        began = time.monotonic()
        if why := part.lacking():
            rows = [Row(part.name, Outcome.SKIPPED, reason=why)]
        elif self._ends - began < _LEAST_S:
            rows = [Row(part.name, Outcome.NOT_RUN, reason="no time left")]
        else:
            rows = self._started(part, min(part.limit_s, self._ends - began))
        took = time.monotonic() - began
        with self._lock:
            self.rows += [replace(row, seconds=took) for row in rows]
            del self._left[id(part)]
            self._write()

    def _started(self, part: Part, limit_s: float) -> list[Row]:
        with tempfile.TemporaryDirectory() as folder:
            file, program, out, err = (Path(folder, name) for name in ("answer", "program.py", "out", "err"))
            program.write_text(part.text)
            places = {"FILE": str(file), "PROGRAM": str(program)}
            command = [places.get(word, word) for word in part.command]
            with out.open("wb") as output, err.open("wb") as errors:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                    env=_environment(Path(folder)), start_new_session=True,
                )  # fmt: skip
                with self._lock:
                    self._children.add(child)
                try:
                    code = child.wait(0 if self._stopped else limit_s)
                except subprocess.TimeoutExpired:
                    code = None
                finally:
                    _kill(child)
                    child.wait()
                    with self._lock:
                        self._children.discard(child)
            ended = Ended(code or 0, out.read_text(errors="replace"), err.read_text(errors="replace"), file)
            if self._stopped:
                return [Row(part.name, Outcome.NOT_RUN, reason="interrupted")]
            if code is not None:
                return list(part.read(part, ended))
            if limit_s < part.limit_s:
                return [Row(part.name, Outcome.NOT_RUN, reason=f"no time left after {limit_s:.0f} s of it")]
            return [_failed(part, ended, f"it took more than {limit_s:.0f} s")]

    def show(self) -> None:
        """The table, then the ends of the failed parts' output."""
        for row in self.rows:
            if row.output:
                sys.stdout.write(f"--- {row.name}\n{row.output}\n\n")
        lines = [
            (row.name, row.outcome.value, row.ratio or f"{row.seconds:.1f} s", row.reason)
            for row in self.rows
        ]
        widths = [max(map(len, column), default=0) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = (cell.ljust(width) for cell, width in zip(line[:3], widths, strict=False))
            sys.stdout.write("  ".join((*cells, line[3])).rstrip() + "\n")
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self._counts().items())
        took = time.monotonic() - self._began
        sys.stdout.write(f"\n{counts or 'nothing was run'}; {took:.0f} s on {', '.join(self._devices)}\n")

    def exit_code(self) -> int:
        return Exit.FAILURES if Outcome.FAILED.value in self._counts() else Exit.DONE

    def _counts(self) -> dict[str, int]:
        return {
            one.value: count for one in Outcome if (count := sum(row.outcome is one for row in self.rows))
        }

    def _write(self) -> None:
        """Write the results so far, as a borrowed machine may go away."""
        if self._file is not None:
            machine = {"devices": list(self._devices), "system": platform.platform(), "cores": os.cpu_count()}
            rows = [asdict(row) for row in self.rows]
            document = {"schema": 1, "machine": machine, "summary": self._counts(), "outcomes": rows}
            self._file.write_text(json.dumps(document, indent=1) + "\n")


def _environment(folder: Path) -> dict[str, str]:
    """The OpenCL of NVIDIA's driver is found, even if no system file names it."""
    path = os.pathsep.join(filter(None, [str(_CHECKOUT), os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if not no_nvidia_opencl():
        (folder / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
        own["OCL_ICD_VENDORS"] = str(folder)
    return os.environ | own


def _kill(child: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _gpus() -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "gpucache", "--json", "devices"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = json.loads(done.stdout)["outcomes"] if done.returncode == 0 else []
    return [row for row in rows if row["backend"] == "cuda" and row["present"]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu",
        description="Run the tests that need a GPU and the benchmarks that launch on one, and print a table. "
        "Exit codes: 0 nothing failed, 3 something failed, 4 this machine has no GPU.",
    )
    parser.add_argument("--limit", type=float, default=_LIMIT_S, metavar="S", help="seconds for all (570)")
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="tests at a time (4)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write every row to a file, as it comes"
    )
    parser.add_argument(
        "--collect-only", action="store_true", help="list the parts with their limits, and stop"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts within the limit, and print the table; returns an ``Exit``."""
    given = _parser().parse_args(arguments)
    ends = time.monotonic() + given.limit
    os.chdir(_CHECKOUT)
    if given.collect_only:
        for part in [*collected(), *measured("cuda:GPU")]:
            why = part.lacking()
            told = f"  would be skipped: {why}" if why else ""
            sys.stdout.write(f"{part.limit_s:4.0f} s  {part.name}{told}\n")
        return Exit.DONE
    if why := no_gpu():
        sys.stderr.write(f"Nothing was run: {why}.\n")
        return Exit.NO_DEVICE
    gpus = _gpus()
    target = gpus[0]["target"] if gpus else "cuda:sm_90"  # then its test fails, and benchmarks say why
    run = Run(ends, given.json, [f"{one['name']} (CUDA {one['driver_version']})" for one in gpus])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run.all([*collected(), *measured(target)], given.jobs)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    finally:
        run.show()
    return run.exit_code()


if __name__ == "__main__":
    sys.exit(main())
