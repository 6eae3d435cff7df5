"""Misses left to their program: the notes of them, and the builds that warm makes of the notes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.lookup import Miss, Noted, Verdict
from gpucache.answers.warm import WarmOutcome, WarmResult
from gpucache.backends.interface import load_backend
from gpucache.engine.lookup import leave
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.stores import Stores
from gpucache.engine.warm.plan import plan_missed
from gpucache.engine.warm.run import forget_built
from gpucache.model import BuildRequest, Device, Program, Target, Toolchain
from gpucache.store.directory import DirectoryStore

_MISS = Miss(Verdict.NEVER_BUILT, "words")
_TOOLCHAIN = Toolchain("pocl", (("device name", "a device"), ("driver version", "1.0")), ("device name",))
_DEVICE = Device(
    Target("opencl", "pocl/cpu"), "opencl", "a device", "1.0", available=True, detail="", toolchain=_TOOLCHAIN
)
_BACKENDS = {"opencl": load_backend("opencl")}


def _planned(store: DirectoryStore, environ: Mapping[str, str], **more: Any) -> Any:
    (item,) = plan_missed(store.missed.all(), more.pop("devices", [_DEVICE]), _BACKENDS, environ, **more)
    return item


def test_what_a_late_compiler_was_asked_for_is_noted(
    ready: Callable[..., Prepared], stores: Stores, store: DirectoryStore
) -> None:
    """The request is kept and its miss written down as one that warm can build."""
    left = leave(stores, ready(b"", implementation="pocl", local_sizes=[(64,)]), _MISS, 5)
    assert (left.noted, left.compile_ns) == (Noted.NEW, 5)
    assert store.missed.all()[0].request.local_sizes == ((64,),)
    assert store.journal_tail(1)[0]["noted"] is True


def test_what_the_driver_rejected_is_noted_as_such(
    ready: Callable[..., Prepared], stores: Stores, store: DirectoryStore
) -> None:
    """A note says that the entry exists but is of no use."""
    leave(stores, ready(b"", implementation="pocl"), Miss(Verdict.REJECTED, "words"), 5)
    leave(stores, ready(b"// another", implementation="pocl"), _MISS, 5)
    assert sorted(one.rejected for one in store.missed.all()) == [False, True]


@pytest.mark.parametrize(
    ("stores_", "miss"),
    [
        pytest.param({"read_only": True}, _MISS, id="read-only"),
        pytest.param({}, Miss(Verdict.UNCACHEABLE, "why"), id="uncacheable"),
    ],
)
def test_what_cannot_be_kept_is_not_noted(
    ready: Callable[..., Prepared], stores: Stores, store: DirectoryStore, stores_: Any, miss: Miss
) -> None:
    """Without a cache to write, or a key, there is nothing for warm to build."""
    left = leave(stores._replace(**stores_), ready(b"", implementation="pocl"), miss, 5)
    assert (left.noted, store.missed.all()) == (Noted.NONE, [])
    assert left.note


def test_a_note_is_asked_for_as_the_program_did(
    ready: Callable[..., Prepared], stores: Stores, store: DirectoryStore
) -> None:
    """The planned request has the key of the lookup, and further local sizes if they are given."""
    prepared = ready(b"", implementation="pocl", options=["-DA"], local_sizes=[(64,)])
    leave(stores, prepared, _MISS, 5)
    item = _planned(store, {}, local_sizes=[(8, 8)])
    assert item.request.local_sizes == ((64,), (8, 8))
    assert prepare(_BACKENDS["opencl"], item.request, item.toolchain, {}).key == prepared.key


def test_headers_of_the_current_directory_are_found_from_elsewhere(stores: Stores, tmp_path: Path) -> None:
    """A program that found a header where it ran has the same key in a worker, which runs elsewhere."""
    for place, value in (("here", "7"), ("there", "8")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "value.h").write_text(f"#define VALUE {value}\n", encoding="ascii")
    request = BuildRequest(
        Program("show", _BACKENDS["opencl"].language, b'#include "value.h"\n'),
        Target("opencl", "pocl/cpu"),
        options=(f"-I{tmp_path / 'there'}",),
        cwd=str(tmp_path / "here"),
        searches_cwd=True,
    )
    prepared = prepare(_BACKENDS["opencl"], request, _TOOLCHAIN, {})
    leave(stores, prepared, _MISS, 5)
    assert stores.user is not None
    (item,) = plan_missed(stores.user.missed.all(), [_DEVICE], _BACKENDS, {})
    assert item.request is not None
    assert not item.request.searches_cwd
    assert prepare(_BACKENDS["opencl"], item.request, _TOOLCHAIN, {}).key == prepared.key


def test_what_cannot_be_asked_here_is_skipped(
    ready: Callable[..., Prepared], stores: Stores, store: DirectoryStore
) -> None:
    """Another environment, or an absent device, is reported, and no other build takes its place."""
    prepared = ready(b"", implementation="pocl", environ={"POCL_X": "1"})
    leave(stores, prepared, _MISS, 5, (("POCL_X", "1"),))
    assert _planned(store, {}).skipped == "it was wanted with another POCL_X; set it as the program has it"
    assert not _planned(store, {"POCL_X": "1"}).skipped
    assert _planned(store, {"POCL_X": "1"}, devices=[]).skipped == "its target is not on this machine"


@pytest.mark.parametrize(
    ("result", "left"),
    [(WarmResult.BUILT, 0), (WarmResult.HIT, 0), (WarmResult.FAILED, 1), (WarmResult.INTERRUPTED, 1)],
)
def test_only_what_is_there_now_is_forgotten(
    ready: Callable[..., Prepared], stores: Stores, store: DirectoryStore, result: WarmResult, left: int
) -> None:
    """The notes of builds that failed or were not reached stay."""
    leave(stores, ready(b"", implementation="pocl"), _MISS, 5)
    item = _planned(store, {})
    forget_built(store, store.missed.all(), [WarmOutcome(item.program, item.target, result, item.variant)])
    assert len(store.missed.all()) == left
