"""A root on a file system whose server keeps failing: the program runs, with at most one warning."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from gpucache.model import Entry
from gpucache.store.directory import DirectoryStore
from tests.faults.builder import CUDA, Builder
from tests.trials import tell, trials

OPERATIONS = (
    "LOOKUP", "GETATTR", "SETATTR", "MKDIR", "UNLINK", "RENAME2", "OPEN", "READ", "WRITE", "FSYNC", "FLUSH",
    "OPENDIR", "READDIR", "CREATE", "ALL",
)  # fmt: skip
ERRORS = (
    "EIO", "ESTALE", "EACCES", "EROFS", "ENOSPC", "EDQUOT", "ENOTCONN", "ETIMEDOUT", "EOPNOTSUPP", "EPERM",
)  # fmt: skip
pytestmark = [pytest.mark.slow, pytest.mark.stress]


class Disk:
    """A directory shown at ``place`` by a process that makes operations fail."""

    def __init__(self, place: Path) -> None:
        self.place, self.folder = place / "shown", place / "folder"
        self.place.mkdir(0o700)
        self.folder.mkdir(0o700)
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("fuse_process.py"), self.folder, self.place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        if self._process.stdout.readline() != "ready\n":
            pytest.skip(f"no file system in user space here: {self._process.stderr.read()[-200:]}")

    def fail(self, words: str = "") -> None:
        """Make an operation fail from now on, such as ``WRITE EIO``; none without words."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(words, file=self._process.stdin, flush=True)
        self._process.stdout.readline()

    def die(self) -> None:
        """Kill the server; its mount stays and no longer responds."""
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        subprocess.run(["umount", "--lazy", self.place], check=False, capture_output=True)
        self.die()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.end()


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    builder = Builder("cuda", source=CUDA, place=tmp_path_factory.mktemp("builder"), environ=os.environ)
    yield builder
    builder.end()


@pytest.mark.parametrize("kind", ["a hit", "a publish", "a first publish"])
def test_an_operation_that_always_fails(disk: Disk, builder: Builder, kind: str) -> None:
    """The program gets its binary; a lost entry is reported once; earlier entries are sound."""
    root, template = disk.place / "root", disk.folder / "template"
    code = builder.build(template)["code"]
    if kind == "a publish":
        for entry in template.glob("v1/entries/*/*.gpc"):
            entry.unlink()
    wrong = []
    each = list(product(OPERATIONS, ERRORS))[:: trials(13, 1)]
    for operation, error in each:
        shutil.rmtree(disk.folder / "root", ignore_errors=True)
        if kind != "a first publish":
            shutil.copytree(template, disk.folder / "root")
        disk.fail(f"{operation} {error}")
        outcome = builder.build(root)
        disk.fail()
        store = DirectoryStore(root, writable=False)
        sound = all(isinstance(store.check(scanned), Entry) for scanned in store.scan())
        kept = any(root.glob("v1/entries/*/*.gpc"))
        if outcome["error"] or outcome["code"] != code or not sound:
            wrong.append(f"{operation} {error}: {outcome}")
        elif len(outcome["warned"]) > 1 or not (kept or outcome["warned"]):
            wrong.append(f"{operation} {error}: {outcome['said']}")
    tell(f"an error at every call of one operation of a file system, during {kind}", len(each), len(wrong))
    assert not wrong, "\n".join(wrong)


def test_a_server_that_is_gone(disk: Disk, builder: Builder) -> None:
    """If the root's server has died, the program is built, and one line has the remedy."""
    root = disk.place / "root"
    code = builder.build(root)["code"]
    disk.die()
    outcome = builder.build(root)
    assert (outcome["error"], outcome["code"]) == ("", code)
    (told,) = outcome["warned"]
    assert f"the cache root {root} cannot be opened: Transport endpoint is not connected; mount it" in told
