"""Caches of every system around a command, and the lines about those that it changed."""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha1
from pathlib import Path

import pytest

from gpucache.caches.registry import NAMES, load_system
from tests.children import run_python
from tests.contracts.examples import OLD_NS, open_example
from tests.lived_in import Caches, run

_PLACES = """
import os
from gpucache.caches.registry import NAMES, load_system
for name in NAMES:
    for location in load_system(name).locations(os.environ):
        print(location.root)
"""
_BEFORE = "import os, pathlib, sys; place = pathlib.Path(sys.argv[1]); "
_AS_BEFORE = f"os.utime(place, ns=({OLD_NS}, {OLD_NS}))"


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    """A user whose places are all below the directory of the test."""
    below = {"HOME": "home", "TMPDIR": "tmp", "OPTIX_CACHE_PATH": "optix", "POCL_CACHE_DIR": "pocl"}
    return {**os.environ, **{name: str(tmp_path / place) for name, place in below.items()}}


def test_there_is_a_sound_cache_of_every_system(environ: Mapping[str, str]) -> None:
    """Each is where its owner looks, or in the home where a program names the place, and goes in the end."""
    caches = Caches([environ])
    assert {*caches.places.values()} == {*NAMES}
    for place, name in caches.places.items():
        assert [*open_example(name, place).scan()], name
    caches.remove()
    assert not any(map(os.path.lexists, caches.places))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("place.write_bytes(b'x')", "another content and mtime"),
        (f"place.write_bytes(b'x'); {_AS_BEFORE}", "another content"),
        (f"os.utime(place, ns=({OLD_NS}, 7))", "another mtime"),
        ("place.chmod(0o640)", "another mode"),
        ("place.unlink()", "removed"),
        ("place.unlink(); place.mkdir()", "another mode and content and mtime"),
    ],
)
def test_a_changed_byte_is_told(
    environ: Mapping[str, str], capfd: pytest.CaptureFixture[str], change: str, told: str
) -> None:
    """So is another time or mode, or a file that is gone or replaced: the command fails, and the line has the
    path."""
    place = Path(environ["HOME"], ".cupy/kernel_cache", f"{sha1(b'1').hexdigest()}.cubin")
    assert run([sys.executable, "-c", _BEFORE + change, str(place)], environ) == 1
    line = f"a cache that the command did not make: {place}: {told}"
    assert line in capfd.readouterr().err.splitlines()


def test_a_new_file_is_told_and_stays(environ: Mapping[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    """The examples around it go."""
    new = Path(environ["HOME"], ".triton/cache/new")
    assert run([sys.executable, "-c", f"{_BEFORE}place.touch()", str(new)], environ) == 1
    assert f"{new}: new\n" in capfd.readouterr().err
    assert [*new.parent.iterdir()] == [new]


def test_a_command_that_changes_nothing_ends_as_without_them(environ: Mapping[str, str]) -> None:
    """Its exit code is its own."""
    assert [run([sys.executable, "-c", f"exit({code})"], environ) for code in (0, 3)] == [0, 3]


def test_a_cache_that_existed_is_left_alone(environ: Mapping[str, str]) -> None:
    """No example is added to it, it may change meanwhile, and it is there afterwards."""
    own = Path(environ["HOME"], ".triton/cache/own")
    own.parent.mkdir(parents=True)
    own.write_bytes(b"mine")
    assert run([sys.executable, "-c", f"{_BEFORE}place.write_bytes(b'new')", str(own)], environ) == 0
    assert [*own.parent.iterdir()] == [own] and own.read_bytes() == b"new"


@pytest.mark.parametrize("unset", [(), ("HOME", "XDG_CACHE_HOME")])
def test_a_process_of_the_tests_finds_no_place_of_their_user(
    unset: Sequence[str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever way an owner finds its cache: by a variable, the user's record, or a place of all users."""
    for name in unset:
        monkeypatch.delenv(name)
    roots = run_python("-c", _PLACES).splitlines()
    own = [tmp_path_factory.getbasetemp(), Path(tempfile.gettempdir())]
    assert len(roots) > 20
    assert [root for root in roots if not any(map(Path(root).is_relative_to, own))] == []


@pytest.mark.parametrize("environ", [{}, {"HOME": "/nonexistent"}])
def test_no_environment_leads_the_tests_themselves_to_a_cache_of_their_user(
    environ: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Even one without variables, with which a child process would find a place of all users."""
    roots = [one.root for name in NAMES for one in load_system(name).locations(environ)]
    own = [tmp_path_factory.getbasetemp(), Path("/nonexistent")]
    assert [root for root in roots if not any(map(Path(root).is_relative_to, own))] == []
