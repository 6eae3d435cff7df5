"""The system that CONTRIBUTING shows in another package: it is found, and keeps its promises."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.children import run_text

_GUIDE = Path(__file__).parents[2] / ".github" / "CONTRIBUTING.md"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory with the package as it is printed, and its entry point."""
    system, tests = re.findall(r"```python\n(.*?)```", _GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "toy_cache.py").write_text(system, encoding="utf-8")
    (tmp_path / "test_toy.py").write_text(tests, encoding="utf-8")
    points = tmp_path / "toy_cache-1.dist-info" / "entry_points.txt"
    points.parent.mkdir()
    points.write_text("[gpucache.caches]\ntoy = toy_cache:SYSTEM\n", encoding="ascii")
    return tmp_path


def test_its_own_tests_pass(installed: Path) -> None:
    """The promises are kept."""
    done = run_text([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."], cwd=installed)
    assert (done.returncode, "7 passed" in done.stdout) == (0, True), done.stdout


def test_a_broken_promise_fails(installed: Path) -> None:
    """A format that finds no fault in anything is seen."""
    module = installed / "toy_cache.py"
    blind = """    def check(self, item):
        return iter(())

    def look(self, item):
        return self.entry(item)


"""
    module.write_text(
        module.read_text("utf-8").replace("ToyPlaces.format", f"{blind}ToyPlaces.format"), "utf-8"
    )
    done = run_text([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."], cwd=installed)
    assert (done.returncode, "1 failed, 6 passed" in done.stdout) == (1, True), done.stdout


def test_the_verbs_find_it(installed: Path) -> None:
    """By its name, as any other system, and among all."""
    place = installed / "cache"
    place.mkdir()
    (place / "0123456789abcdef.ptx").touch()
    os.utime(place / "0123456789abcdef.ptx", (1, 1))
    environ = {**os.environ, "PYTHONPATH": str(installed), "TOY_CACHE": str(place)}
    environ |= {"HOME": str(installed), "GPUCACHE_DIR": str(installed / "own")}
    shown = run_text([sys.executable, "-m", "gpucache", "inspect"], env=environ)
    assert re.search(rf"^toy +1 .* {place}$", shown.stdout, re.MULTILINE), shown
    done = run_text([sys.executable, "-m", "gpucache", "verify", "--cache", "toy"], env=environ)
    assert (done.returncode, "truncated" in done.stdout) == (3, True), done.stderr
