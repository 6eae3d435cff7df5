"""Entries loaded in real child processes, with drivers that live or die by order."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.verify import Checked, Finding
from gpucache.engine.load_and_rebuild import try_load
from gpucache.engine.verify import run_verify
from gpucache.errors import CompileError, WorkersError
from gpucache.model import Artifact, ArtifactKind

ENTRY = CacheEntry("gpucache", "ab" * 32, "/cache/entry", 9, 0, 0, "show", "opencl:intel/cpu")
_CACHE: Any = SimpleNamespace(artifact=lambda _: Artifact(ArtifactKind.OPENCL_BINARY, b"code", "", 0))


def loads(_: object) -> tuple[str, ...]:
    return ("show",)


def dies(_: object) -> tuple[str, ...]:
    os.abort()


def rejects(_: object) -> tuple[str, ...]:
    raise CompileError("the driver rejected the binary (INVALID_BINARY)")


def _defective(detail: str) -> Checked:
    return Checked(ENTRY.key, (Finding.about(ENTRY, Problem(FindingKind.MISLABELLED, detail)),))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "other", "trial"),
    [
        (loads, dies, Checked(ENTRY.key, passed=("loaded",))),
        (dies, loads, _defective("loading it failed: its compiler process died of SIGABRT")),
        (rejects, loads, _defective("the driver rejected the binary (INVALID_BINARY)")),
        (
            dies,
            dies,
            Checked(
                ENTRY.key,
                unchecked="no other program can be loaded for opencl:intel/cpu now either: "
                "its compiler process died of SIGABRT",
            ),
        ),
        (
            rejects,
            rejects,
            Checked(
                ENTRY.key,
                unchecked="no other program can be loaded for opencl:intel/cpu now either: "
                "the driver rejected the binary (INVALID_BINARY)",
            ),
        ),
    ],
)
def test_an_entry_is_at_fault_where_another_program_loads(load: Any, other: Any, trial: Checked) -> None:
    """A driver that loads nothing at all, for want of threads or memory, proves nothing about an entry."""
    assert try_load(_CACHE, [], load, other, ENTRY) == trial


def test_without_workers_the_rest_is_not_tried() -> None:
    """After one failed start every entry is checked by its bytes alone, and the report says so."""
    tried = []

    def unstartable(entry: CacheEntry) -> Checked:
        tried.append(entry)
        raise WorkersError("no worker process can be started (no memory)")

    cache: Any = SimpleNamespace(check=lambda entry: Checked(entry.key), leftovers=lambda: ())
    found = [checked for checked, _ in run_verify(cache, [ENTRY, ENTRY], trials=[unstartable])]
    assert [one.unchecked for one in found] == ["no worker process can be started (no memory)"] * 2
    assert len(tried) == 1
