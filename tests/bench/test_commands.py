"""Any command cold against warm, with a real command that keeps its own cache."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpucache.answers.bench import Arm, BenchCase, BenchVerdict
from gpucache.bench import run as running
from gpucache.bench.run import Command, Extent, run_bench
from tests.one_cache import OneCache

pytestmark = pytest.mark.slow

# It works hard unless its cache has the answer; PLACE is where the cache is.
_APP = """
import os, pathlib, sys
place = pathlib.Path(os.environ.get("PINNED") or os.environ["PLACE"])
entry = place / "entry"
if not entry.exists() or os.environ.get("FORGETFUL"):
    total = sum(i * i for i in range(6_000_000))
    place.mkdir(exist_ok=True)
    name = f"entry-{os.getpid()}" if os.environ.get("FORGETFUL") else "entry"
    (place / name).write_text(str(total))
print("sum", os.getpid() if os.environ.get("RESTLESS") else "")
"""


def _bench(
    tmp_path: Path, *, argv: tuple[str, ...] = (), same_output: bool = False,
    as_is: bool = False, root: Path | None = None, **environ: str,
) -> BenchCase:  # fmt: skip
    around = OneCache({**os.environ, "PLACE": str(tmp_path / "own"), **environ}, root=root)
    command = argv or (sys.executable, "-c", _APP)
    plan = Command(command, around, 60.0, same_output=same_output, as_is=as_is).plan()
    (case,) = run_bench([plan], Extent(3))
    return case


@pytest.fixture(autouse=True)
def _quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "read", lambda: None)
    (tmp_path / "bench").mkdir()

    @contextmanager
    def place(_: str) -> Iterator[Path]:
        yield tmp_path / "bench"

    monkeypatch.setattr(running, "scratch", place)


def test_starts_come_in_pairs_with_their_proof(tmp_path: Path) -> None:
    """Every cold start wrote the entry and no warm one did."""
    case = _bench(tmp_path)
    cold = [sample for sample in case.samples if sample.arm is Arm.COLD]
    warm = [sample for sample in case.samples if sample.arm is Arm.WARM]
    assert [[one.entries for one in sample.growth] for sample in cold] == [[1]] * 3
    assert [(sample.growth, sample.hit) for sample in warm] == [((), True)] * 3
    assert case.verdict is not BenchVerdict.FAILED and case.growth[0].cache == "app"
    assert any("fully warm after run 1" in note for note in case.notes)
    assert "wrote into app" in case.caveats
    assert case.redirects == (("PLACE", "DIR"),)


def test_a_command_without_a_known_cache_is_told(tmp_path: Path) -> None:
    """If nothing is written into the empty directories, cold and warm are the same and have no ratio."""
    case = _bench(tmp_path, argv=(sys.executable, "-c", "print(1)"))
    assert case.verdict is BenchVerdict.NO_CACHE
    assert case.ratio is None and case.cold is not None
    assert "'gpucache bench -- gpucache run -- COMMAND'" in case.reason


def test_a_first_run_that_fills_another_place_is_found_out(tmp_path: Path) -> None:
    """A command that caches only in its own place is slow once, never again, and the times are reported."""
    case = _bench(tmp_path, PINNED=str(tmp_path / "pinned"))
    assert case.verdict is BenchVerdict.DEGRADED and "the first run of all used" in case.reason


# Next to a small entry in the reported place, it keeps its expensive results below its home directory.
_SPLIT = """
import os, pathlib
hard = pathlib.Path.home() / ".app" / "hard"
if not hard.exists():
    total = sum(i * i for i in range(6_000_000))
    hard.parent.mkdir()
    hard.write_text(str(total))
place = pathlib.Path(os.environ["PLACE"])
place.mkdir(exist_ok=True)
(place / "entry").exists() or (place / "entry").write_text("small")
"""


def test_a_full_cache_below_the_home_folder_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was full before the benchmark began, so only an empty home directory shows its effect."""
    (tmp_path / ".app").mkdir()
    (tmp_path / ".app" / "hard").write_text("1", encoding="utf-8")
    monkeypatch.setattr("gpucache.engine.warm.command.shutil.which", lambda _: None)
    case = _bench(tmp_path, argv=(sys.executable, "-c", _SPLIT), HOME=str(tmp_path))
    assert case.verdict is BenchVerdict.DEGRADED
    assert "below the home directory in ~/.app: with an empty one it used" in case.reason


def test_a_command_that_does_not_run_without_its_home_is_measured(tmp_path: Path) -> None:
    """A failure caused by the empty home directory is not evidence of a cache."""
    (tmp_path / "licence").touch()
    needs = "import pathlib; assert (pathlib.Path.home() / 'licence').exists();" + _APP
    case = _bench(tmp_path, argv=(sys.executable, "-c", needs), HOME=str(tmp_path))
    assert case.cold is not None and "home directory" not in case.reason


def test_what_could_not_be_traced_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without strace, or if the command does not run under it, a note says that caches may go unseen."""
    assert not any("traced" in note for note in _bench(tmp_path).caveats) or shutil.which("strace") is None
    monkeypatch.setattr("gpucache.engine.warm.command._TRACER", ("false",))
    shutil.rmtree(tmp_path / "bench")
    (tmp_path / "bench").mkdir()
    assert any("it could not be traced by strace" in note for note in _bench(tmp_path).caveats)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_full_cache_that_the_command_names_is_found_out(tmp_path: Path) -> None:
    """A known cache in a place that only the command knows is read by its warm starts."""
    root = tmp_path / "elsewhere"
    root.mkdir()
    (root / "kernel").write_bytes(b"compiled")
    reads = f"open({str(root / 'kernel')!r}).read();" + _APP
    case = _bench(tmp_path, argv=(sys.executable, "-c", reads), root=root)
    assert case.verdict is BenchVerdict.DEGRADED
    assert case.reason.startswith(f"it also caches in {root}")


def test_a_warm_start_that_misses_is_found_out(tmp_path: Path) -> None:
    """A command that adds an entry at every start is never warm."""
    case = _bench(tmp_path, FORGETFUL="1")
    assert case.verdict is BenchVerdict.DEGRADED and "the warm starts missed" in case.reason
    assert any("never came to rest" in note for note in case.caveats)


def test_output_that_differs_is_told_on_request(tmp_path: Path) -> None:
    """With --same-output a start that prints something else spoils the comparison."""
    case = _bench(tmp_path, RESTLESS="1", same_output=True)
    assert case.verdict is BenchVerdict.FAILED and "output differs" in case.reason


def test_a_failing_command_is_not_averaged(tmp_path: Path) -> None:
    """The command's own failure is shown, with its message."""
    case = _bench(tmp_path, argv=(sys.executable, "-c", "raise SystemExit('no device')"))
    assert case.verdict is BenchVerdict.FAILED and "no device" in case.reason
    assert case.cold is None and case.ratio is None


def test_a_start_that_fails_ends_the_case(tmp_path: Path) -> None:
    """No start follows a failed cold one, and the results of earlier runs stay."""
    fails = "import os; assert 'cold' not in os.environ['PLACE'], 'no room';" + _APP
    case = _bench(tmp_path, argv=(sys.executable, "-c", fails))
    assert case.verdict is BenchVerdict.FAILED and "no room" in case.reason
    assert len(case.samples) <= 2 and case.samples[-1].arm is Arm.COLD


def test_the_users_own_caches_can_stand_beside(tmp_path: Path) -> None:
    """The as-is arm runs among the user's own caches, which no other arm touched before."""
    case = _bench(tmp_path, as_is=True)
    assert [result.arm for result in case.arms] == [Arm.AS_IS]
    assert (tmp_path / "own" / "entry").exists()


def test_cold_folders_do_not_pile_up(tmp_path: Path) -> None:
    """Of all starts only the warm directory is left."""
    _bench(tmp_path)
    assert [path.name for path in (tmp_path / "bench").iterdir()] == ["warm"]
