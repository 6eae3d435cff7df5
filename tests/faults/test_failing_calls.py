"""Every system call of a hit and of a publish that fails: the program goes on, with at most one warning.

A dry run under strace counts the calls that touch the root; then each fails in a separate run.
The short form takes some of the calls, each with another error; the long one (see ``tests/trials.py``) takes
all with every error.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpucache.model import Entry
from gpucache.store.directory import DirectoryStore
from tests.faults.builder import CUDA, OPENCL, Builder, Call
from tests.pocl import PLATFORM, need_pocl
from tests.store.conftest import left
from tests.trials import tell, trials

ERRORS = ("ENOSPC", "EIO", "ESTALE", "EACCES", "EROFS", "EMFILE", "EDQUOT", "EINTR", "EOPNOTSUPP")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.stress,
    pytest.mark.skipif(
        shutil.which("strace") is None, reason="strace is not installed, which makes system calls fail"
    ),
]


def _trials(calls: list[Call], every: int) -> list[tuple[Call, str]]:
    """Every call with every error; the short form takes some, each with another error."""
    each = [(call, error) for call in calls for error in ERRORS]
    return each[:: trials(len(ERRORS) * every + 1, 1)]


def _kept(root: Path) -> bool:
    """Whether an entry or a request was kept."""
    return any(root.glob("v1/entries/*/*.gpc")) or any(root.glob("v1/missed/*.json"))


def _wrong(root: Path, call: Call, outcome: Mapping[str, Any], code: str) -> Iterator[str]:
    """The broken promises of a run in which a call failed."""
    if outcome["error"] or outcome["code"] != code:
        yield f"the program was given {outcome['error'] or 'another binary'}"
        return
    warned = len(outcome["warned"])
    if warned > 1 or (not warned and not _kept(root)):
        yield f"it was said {warned} times: {outcome['said']}"
    store = DirectoryStore(root, writable=False)
    if root.exists() and not all(isinstance(store.check(scanned), Entry) for scanned in store.scan()):
        yield "an entry is damaged"
    # A lock that cannot be looked at or removed is the next one's.
    if call.name != "unlinkat" and ".lock>" not in call.shown and (found := left(root)):
        yield f"left behind: {found}"


def _attack(what: str, builder: Builder, before: Path, place: Path, every: int) -> None:
    """Fail the calls of a build with a copy of a root; ``before`` need not exist."""
    root = place / "root"

    def renew() -> None:
        shutil.rmtree(root, ignore_errors=True)
        if before.exists():
            shutil.copytree(before, root)

    renew()
    calls, code = builder.calls(root), builder.build(root)["code"]
    wrong, made = [], 0
    for call, error in _trials(calls, every):
        renew()
        outcome = builder.build_failing(root, call, error)
        if outcome is not None:
            wrong += [f"{error} at {call.shown}: {each}" for each in _wrong(root, call, outcome, code)]
            made += 1
    tell(f"an error at each of {len(calls)} system calls of {what}", made, len(wrong))
    assert made > len(_trials(calls, every)) / 2
    assert calls and not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calls")


@pytest.fixture(scope="module")
def nvrtc(place: Path) -> Iterator[Builder]:
    builder = Builder("cuda", source=CUDA, place=place, environ=os.environ)
    yield builder
    builder.end()


@pytest.fixture(scope="module")
def warm(nvrtc: Builder, place: Path) -> Path:
    root = place / "warm"
    assert nvrtc.build(root)["warned"] == []
    return root


@pytest.fixture(scope="module")
def emptied(warm: Path, place: Path) -> Path:
    """The same root with its record and without the entry."""
    root = place / "emptied"
    shutil.copytree(warm, root)
    for entry in root.glob("v1/entries/*/*.gpc"):
        entry.unlink()
    return root


def test_a_hit(nvrtc: Builder, warm: Path, tmp_path: Path) -> None:
    """Whatever fails of a hit, the program gets its binary, from the entry or compiled anew and kept."""
    _attack("a hit", nvrtc, warm, tmp_path, every=1)


def test_a_publish(nvrtc: Builder, emptied: Path, tmp_path: Path) -> None:
    """Whatever fails of a publish, the program gets its binary; a lost entry is reported once."""
    _attack("a publish", nvrtc, emptied, tmp_path, every=12)


def test_the_first_publish(nvrtc: Builder, tmp_path: Path) -> None:
    """The same if the root has to be made first."""
    _attack("a first publish", nvrtc, tmp_path / "nothing", tmp_path, every=12)


def test_a_miss_that_is_noted(place: Path, tmp_path: Path, opencl_environment: Mapping[str, str]) -> None:
    """Whatever fails while a late compiler's request is noted, the program is built; a loss is logged."""
    need_pocl()
    builder = Builder("opencl", PLATFORM, source=OPENCL, place=place, environ=opencl_environment)
    try:
        builder.build(tmp_path / "made")
        _attack("noting a miss", builder, tmp_path / "nothing", tmp_path, every=12)
    finally:
        builder.end()
