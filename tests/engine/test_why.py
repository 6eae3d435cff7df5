"""Explanations of requests, without a command line."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.entries import CacheEntry, EntryReport
from gpucache.answers.lookup import Miss, Verdict
from gpucache.answers.why import Answer
from gpucache.backends.interface import load_backend
from gpucache.engine.lookup import get_or_build
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.stores import Stores
from gpucache.engine.warm.plan import WarmItem
from gpucache.engine.why import compare, items_of, why
from gpucache.model import ArtifactKind, KeyField
from gpucache.store.directory import DirectoryStore

Ready = Callable[..., Prepared]


def _item(prepared: Prepared) -> WarmItem:
    request, toolchain = prepared.request, prepared.compilation.inputs.toolchain
    return WarmItem(request.program.name, str(request.target), "", request, toolchain)


@pytest.fixture
def ask(stores: Stores) -> Callable[..., list[Answer]]:
    backends = {name: load_backend(name) for name in ("cuda", "opencl")}
    return lambda *items: list(why(items, backends, stores, {}))


@pytest.mark.parametrize("implementation", ["pocl", "intel"])
def test_the_directory_that_a_program_runs_in_is_searched_and_told(
    stores: Stores, ready: Ready, tree: Callable[..., Path], compiler: Any, implementation: str
) -> None:
    """A program built where a header is found is a hit there, and elsewhere the difference is named."""
    here, source = tree("here"), b'#include "value.h"'
    anywhere = ready(source, implementation=implementation)
    request, toolchain = anywhere.request, anywhere.compilation.inputs.toolchain
    backend = load_backend("opencl")
    running = prepare(backend, request._replace(cwd=str(here), searches_cwd=True), toolchain, {})
    get_or_build(stores, running, compiler(kind=ArtifactKind.OPENCL_BINARY))
    backends = {"opencl": backend}
    (found,) = why([_item(anywhere)], backends, stores, {}, str(here))
    assert (found.hit, found.directory) == (True, str(here))
    assert isinstance(found.elsewhere, Miss) and found.elsewhere.verdict is Verdict.KEY_CHANGED
    (found,) = why([_item(anywhere)], backends, stores, {}, str(here.parent))
    assert (found.hit, found.directory, found.elsewhere) == (False, None, None)


def _entry(program: str, created_ns: int, variant: str = "") -> CacheEntry:
    return CacheEntry("gpucache", "ab", "", 1, created_ns, 1, program, "cuda:sm_90", variant=variant)


def _report(*fields: tuple[str, str]) -> EntryReport:
    return EntryReport(_entry("k.cu", 1), tuple(KeyField(*pair) for pair in fields), (), 1, "", "1")


def test_a_hit_and_what_was_written_before(
    ask: Callable[..., list[Answer]], stores: Stores, store: DirectoryStore, ready: Ready, compiler: Any
) -> None:
    """A stored build is a hit; a miss reports the last three keys built for its target, newest first."""
    built = [ready(b"int x;", options=[f"-DN={number}"]) for number in range(5)]
    for prepared in built:
        get_or_build(stores, prepared, compiler())
    for one in store.scan():
        store.quarantine(one, "damaged")
    get_or_build(stores, built[3], compiler())
    hit, missed = ask(_item(built[3]), _item(ready(b"int x;", options=["-DN=9"])))
    assert hit.hit and not missed.hit
    assert hit.consulted == missed.consulted == (str(store.root),)
    assert [key for _, key in missed.written] == [str(built[number].key) for number in (3, 4, 2)]


def test_what_cannot_be_asked_is_an_answer(ask: Callable[..., list[Answer]], ready: Ready) -> None:
    """An item without a device was not looked up, a refused option has no key; neither stops the rest."""
    bad = _item(ready(b"int x;"))
    assert bad.request is not None
    bad = replace(bad, request=bad.request._replace(options=("--time=x.csv",)))
    skipped, refused, asked = ask(WarmItem("k.cu", "", skipped="no device"), bad, _item(ready(b"int x;")))
    assert (skipped.found, skipped.consulted) == (Miss(Verdict.NOT_CONSULTED, "no device"), ())
    assert isinstance(refused.found, Miss) and refused.found.verdict is Verdict.UNCACHEABLE
    assert isinstance(asked.found, Miss) and asked.found.verdict is Verdict.NEVER_BUILT


def test_the_newest_entry_of_each_build_is_asked_for() -> None:
    """Each program, target and variant gives one item; one without its device says so."""
    entries = [_entry("a.cu", 2), _entry("a.cu", 1), _entry("b.cu", 1), _entry("a.cu", 1, "-DA")]
    items = items_of(entries, lambda _: _report(), [])
    assert sorted((item.program, item.variant) for item in items) == [
        ("a.cu", ""), ("a.cu", "-DA"), ("b.cu", ""),
    ]  # fmt: skip
    assert {item.skipped for item in items} == {"its target is not on this machine"}


def test_two_entries_are_compared_in_words() -> None:
    """Differing reports yield sentences, equal ones none."""
    left, right = _report(("option", "-DN=1")), _report(("option", "-DN=2"))
    assert compare(left, right) == ["the define N: 1 -> 2"]
    assert compare(left, left) == []
