"""Entries, and other processes that use a store."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.own import OwnCache
from gpucache.model import CacheKey, Entry, EntryDetail, EntryHead
from gpucache.store.directory import DirectoryStore
from tests.patience import PATIENCE_S

Child = subprocess.Popen[str]


def own(store: DirectoryStore) -> OwnCache:
    return OwnCache(store, Location(OwnCache.name, str(store.root), "a test", True, None))


def build_entry(seed: str = "a", payload: bytes = b"payload") -> Entry:
    head = EntryHead("saxpy", "cuda:sm_90", "cubin", 10**18, 10**6, sha256(payload).hexdigest())
    return Entry(CacheKey(sha256(seed.encode()).hexdigest()), head, EntryDetail(()), payload)


_MEMORY = Path("/dev/shm")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory, if possible: the traces of a dead process do not depend on the disk."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


def said(process: str, *words: object) -> dict[str, Any]:
    """The report of a program of this directory about its trials."""
    command = [sys.executable, "-m", f"tests.faults.{process}", *map(str, words)]
    top = Path(__file__).parents[2]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=4 * PATIENCE_S, cwd=top)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


# The beginning of every other process: the function above, a store, and lines for the test to read.
_PRELUDE = """
import os, sys
from pathlib import Path
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Absent, Found
from tests.faults.conftest import build_entry

root = Path(sys.argv[1])
store = DirectoryStore(root, writable=True)

def say(text: object) -> None:
    print(text, flush=True)

def block(*_: object, **__: object) -> None:
    say("blocked")
    sys.stdin.read()
"""


@pytest.fixture
def start() -> Iterator[Callable[[str, Path], Child]]:
    """Start a process on a root; it has ``store``, ``build_entry``, ``say`` and ``block``."""
    children: list[Child] = []

    def begin(script: str, root: Path) -> Child:
        child = subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + script, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield begin
    for child in children:
        child.kill()
        with suppress(BrokenPipeError):
            child.communicate()


_DRIVER = Path(__file__).parents[1] / "opencl_driver.c"


@pytest.fixture(scope="session")
def contrary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vendors directory with an OpenCL driver whose compiler behaves as its source says."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("no C compiler is here to make a driver for Linux")
    place = tmp_path_factory.mktemp("contrary")
    library = place / "libcontrary.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-w", "-o", library, _DRIVER], check=True)
    vendors = place / "vendors"
    vendors.mkdir()
    (vendors / "contrary.icd").write_text(f"{library}\n", encoding="utf-8")
    return vendors
