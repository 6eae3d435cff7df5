"""Two checkouts of a program share their builds, and each gets a log with its own directories."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.children import run_text
from tests.pocl import PLATFORM, need_pocl
from tests.serve.conftest import Done

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")]
_PROGRAM = Path(__file__).with_name("logging_program.py")
_INTEL = "Intel"
_SPELLINGS = ("-I{}/headers", "-I {}/headers/sub/..", "-Iheaders", "-I ./headers/")


@pytest.fixture
def checkouts(tmp_path: Path) -> list[Path]:
    """Two equal trees, with a header that warns and includes another one that does."""
    folders = [tmp_path / "one", tmp_path / "two" / "deeper"]
    for folder in folders:
        nested = folder / "headers" / "sub"
        nested.mkdir(parents=True)
        (folder / "outside_warns.h").write_text("#warning of a header outside\n")
        (nested / "warns2.h").write_text("#warning of a nested header\n")
        (folder / "headers" / "warns.h").write_text(
            '#include "sub/warns2.h"\n#warning of it\n#define VALUE 3\n'
        )
    return folders


@pytest.fixture
def plain(environment: Mapping[str, str]) -> Callable[..., str]:
    """The output of the program in a checkout without gpucache."""
    return lambda place, *words: (
        run_text([sys.executable, _PROGRAM, *words], env=environment, cwd=place, check=True).stdout
    )


@pytest.fixture
def run(environment: Mapping[str, str], tmp_path: Path) -> Callable[..., Done]:
    """The program in a checkout under ``gpucache run``."""
    import json

    def call(place: Path, *words: str, learn: bool = False) -> Done:
        report = tmp_path / "report.json"
        how = ("--learn",) if learn else ()
        command = ("-m", "gpucache", "run", *how, "--report", report, "--", sys.executable, _PROGRAM, *words)
        done = run_text([sys.executable, *command], env=environment, cwd=place)
        return Done(done.returncode, done.stdout, done.stderr, json.loads(report.read_text()))

    return call


def _need(how: str, where: str) -> None:
    if where == PLATFORM:
        need_pocl()
    if how == "nvrtc" and not find_spec("cuda"):
        pytest.skip("cuda.bindings is not installed")


def _words(how: str, where: str, spelling: str, place: Path) -> tuple[str, ...]:
    """The arguments of the program in a checkout; NVRTC takes an option and its value as one."""
    spelled = spelling.format(place)
    return how, where, *([spelled.replace(" ", "")] if how == "nvrtc" else spelled.split())


@pytest.mark.parametrize("spelling", _SPELLINGS)
@pytest.mark.parametrize(("how", "where"), [("plain", _INTEL), ("plain", PLATFORM), ("nvrtc", "")])
def test_a_hit_below_run_has_the_log_of_its_own_checkout(
    checkouts: list[Path],
    plain: Callable[..., str],
    run: Callable[..., Done],
    how: str,
    where: str,
    spelling: str,
) -> None:
    """As without gpucache, by key and by the index: paths of headers, and the options that Intel repeats."""
    _need(how, where)
    one, two = checkouts
    filled = run(one, how, where, f"-I{one}/headers", learn=where == PLATFORM)
    assert filled.code == 0, filled.err
    words = _words(how, where, spelling, two)
    expected = plain(two, *words)
    assert "warns2.h" in expected
    for done in (run(two, *words), run(two, *words)):
        assert (done.out, done.results) == (expected, ["hit"])


def test_a_link_that_is_a_hit_has_its_own_log(
    checkouts: list[Path], plain: Callable[..., str], run: Callable[..., Done]
) -> None:
    """Parts with include directories are shared by no other checkout."""
    for place, result in zip((*checkouts, *checkouts), ("kept", "kept", "hit", "hit"), strict=True):
        words = "link", _INTEL, f"-I{place}/headers"
        done = run(place, *words)
        assert (done.out, done.results) == (plain(place, *words), [result])


@pytest.mark.parametrize(("how", "where"), [("plain", _INTEL), ("nvrtc", "")])
def test_a_layer_has_the_log_of_the_checkout_that_it_was_exported_for(
    checkouts: list[Path],
    plain: Callable[..., str],
    run: Callable[..., Done],
    environment: dict[str, str],
    tmp_path: Path,
    how: str,
    where: str,
) -> None:
    """Its builds were made in another one."""
    _need(how, where)
    one, two = checkouts
    run(one, *_words(how, where, "-I{}/headers", one))
    words = _words(how, where, "-I{}/headers", two)
    command = ("export", "layer", tmp_path / "layer", "--", sys.executable, _PROGRAM, *words)
    run_text([sys.executable, "-m", "gpucache", *command], env=environment, cwd=two, check=True)
    lines = (tmp_path / "layer" / "gpucache.env").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines)
    told = {**environment, **variables, "GPUCACHE_LAYER_TELL": "1"}
    done = run_text([sys.executable, _PROGRAM, *words], env=told, cwd=two, check=True)
    assert done.stdout == plain(two, *words)
    assert "hit" in done.stderr


@pytest.mark.parametrize("spelling", _SPELLINGS)
def test_a_header_above_the_include_directory_is_in_its_own_checkout(
    checkouts: list[Path], plain: Callable[..., str], run: Callable[..., Done], spelling: str
) -> None:
    """Its path in the log leads through the directory."""
    for folder in checkouts:
        with (folder / "headers" / "warns.h").open("a") as header:
            header.write('#include "../outside_warns.h"\n')
    one, two = checkouts
    run(one, *_words("plain", _INTEL, spelling, one))
    words = _words("plain", _INTEL, "-I{}/headers", two)
    expected, done = plain(two, *words), run(two, *words)
    assert f"{two}/headers/../outside_warns.h" in expected
    assert (done.out, done.results) == (expected, ["hit"])


@pytest.mark.parametrize("where", [_INTEL, PLATFORM])
def test_a_hit_of_the_library_has_the_log_of_its_own_checkout(
    checkouts: list[Path],
    plain: Callable[..., str],
    gpucache: Callable[..., "subprocess.CompletedProcess[str]"],
    where: str,
    tmp_path: Path,
) -> None:
    """The tree that built it may be gone."""
    if where == PLATFORM:
        need_pocl()
    one, two = checkouts
    plain(one, "library", where, f"-I{one}/headers")
    gpucache("warm", "--misses")
    shutil.rmtree(one)
    assert len(list((tmp_path / "root").rglob("*.gpc"))) == 1
    for spelling in _SPELLINGS:
        words = where, *spelling.format(two).split()
        assert plain(two, "library", *words) == plain(two, "plain", *words)
    assert len(list((tmp_path / "root").rglob("*.gpc"))) == 1
