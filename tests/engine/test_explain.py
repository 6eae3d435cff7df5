"""Why a lookup missed: every verdict, and for a changed input the field that changed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from gpucache.answers.lookup import Built, Miss, Verdict
from gpucache.backends.interface import load_backend
from gpucache.engine.explain import explain, is_poisoned
from gpucache.engine.lookup import get_or_build, look_up
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.stores import NoEntry, Stores, miss_record
from gpucache.model import CacheKey, EntryDetail, FindingKind, Target
from gpucache.store.bounded_log import line_of
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Damaged, Event, ScannedEntry

Ready = Callable[..., Prepared]
Tree = Callable[..., Path]
KERNEL = b"kernel void show(global int *out) { *out = 7; }\n"


@pytest.fixture
def keep(stores: Stores, compiler: Any) -> Callable[..., None]:
    """Builds requests, so that a miss has something to be compared with."""

    def keep(*requests: Prepared, remark: str = "compiled") -> None:
        for prepared in requests:
            compile_ = compiler(remark, prepared.request.artifact_kind)
            assert isinstance(get_or_build(stores, prepared, compile_), Built)

    return keep


@pytest.fixture
def missed(stores: Stores, keep: Callable[..., None]) -> Callable[..., Miss]:
    """The miss of a request after others were built."""

    def missed(wanted: Prepared, *built: Prepared, remark: str = "compiled") -> Miss:
        keep(*built, remark=remark)
        miss = look_up(stores, wanted)
        assert isinstance(miss, Miss)
        return miss

    return missed


def test_a_place_that_changed_is_named(missed: Callable[..., Miss], ready: Ready, tree: Tree) -> None:
    """For an artifact with paths in it the directory is the field that changed, with both places."""
    first, second = tree("first"), tree("second")
    miss = missed(ready(include_dirs=[second]), ready(include_dirs=[first]), remark=f"compiled in {first}")
    (only,) = miss.differences
    assert (only.label, only.left, only.right) == ("searched directory", str(first), str(second))


def _timeless(miss: Miss) -> str:
    """The detail without the time of the nearest build, which is absolute, as the journal keeps it."""
    return re.sub(r"built at \d{4}-\d\d-\d\dT[\d:]{8}Z", "built at THEN", miss.detail)


def test_many_differences_are_counted(missed: Callable[..., Miss], ready: Ready) -> None:
    """More than four fields are named by the four weightiest and a number."""
    old = ready(b"int x;", options=["-DA", "-DB"], name_expressions=["f<int>"])
    miss = missed(ready(b"int y;", version="1.1"), old)
    gone = "the option -DA=1 is gone; the option -DB=1 is gone"
    told = f"the source changed; {gone}; name expression f<int> -> none"
    assert _timeless(miss) == f"{told}; and 1 more (nearest: {old.key.short}, built at THEN)"


def test_damage_that_could_not_be_moved_is_told(stores: Stores, ready: Ready) -> None:
    """Damage found at the lookup itself is the verdict, with the fate of the file."""
    damaged = Damaged(FindingKind.TRUNCATED, "8 of 9 bytes", quarantined=False)
    miss = explain(stores, ready(), NoEntry(damaged=(damaged,)))
    assert miss == Miss(Verdict.CORRUPT, "the entry was truncated: 8 of 9 bytes, and could not be moved away")


def test_poison_is_forgotten_after_a_week(store: DirectoryStore, ready: Ready, stores: Stores) -> None:
    """A compiler may have died of a temporary problem of the machine: warm tries again by itself."""
    prepared, day_ns = ready(), 86_400 * 10**9
    for days, verdict in ((8, Verdict.NEVER_BUILT), (6, Verdict.POISONED)):
        when_ns = time_ns() - days * day_ns
        store.history.record(
            "show", Event(when_ns, "poisoned", str(prepared.key), "cuda:compute_90", "it died")
        )
        assert explain(stores, prepared, NoEntry()).verdict is verdict


def test_a_time_limit_is_kept_with_the_poison(store: DirectoryStore, ready: Ready, stores: Stores) -> None:
    """A program that exceeded a time limit may be tried again under a longer one, and the miss says so."""
    prepared = ready()
    late = Event(time_ns(), "poisoned", str(prepared.key), "cuda:compute_90", "it hung", limit_s=2.5)
    store.history.record("show", late)
    assert is_poisoned(stores, prepared, 2.5) and not is_poisoned(stores, prepared, 3)
    told = explain(stores, prepared, NoEntry()).detail
    assert "warm --retry or a --timeout above 2.5 tries it again" in told
    store.history.record("show", late._replace(when_ns=time_ns(), why="it died", limit_s=0))
    assert is_poisoned(stores, prepared, 3)


@pytest.mark.parametrize(
    ("built", "asked"),
    [
        ("kernels/nbody.cl", "nbody.cl"),
        ("nbody.cl", "kernels/nbody.cl"),
        ("kernels/nbody.cl", "src/nbody.cl"),
        ("old.cl", "new.cl"),
        ("show", "show.cl"),
        ("show.cl", "show"),
    ],
)
def test_a_program_is_known_again_under_another_name(
    missed: Callable[..., Miss], ready: Ready, built: str, asked: str
) -> None:
    """The same source under another name is explained by its changes and the name of its earlier build."""
    old = ready(KERNEL, name=built, options=["-DN=4"])
    miss = missed(ready(KERNEL, name=asked, options=["-DN=8"]), old)
    assert miss.verdict is Verdict.KEY_CHANGED
    assert _timeless(miss) == f"the define N: 4 -> 8 (nearest: {old.key.short}, built at THEN as {built})"


def test_a_source_without_a_kernel_is_known_by_its_content(missed: Callable[..., Miss], ready: Ready) -> None:
    """A source without a kernel is recognised by its content under any name."""
    old = ready(b"int x;", name="old.cl", options=["-DN=4"])
    miss = missed(ready(b"int x;", name="new.cl", options=["-DN=8"]), old)
    assert miss.verdict is Verdict.KEY_CHANGED
    assert miss.detail.startswith("the define N: 4 -> 8 (")


def test_another_program_with_a_kernel_of_the_same_name_is_no_earlier_version(
    missed: Callable[..., Miss], ready: Ready
) -> None:
    """Another name and another source were never built; the nearest build is still mentioned."""
    old = ready(KERNEL, name="one.cl")
    miss = missed(ready(KERNEL + b"//", name="two.cl"), old)
    assert miss.verdict is Verdict.NEVER_BUILT
    assert miss.detail.startswith("nothing was ever built as two.cl in ")
    assert _timeless(miss).endswith(f"the source changed (nearest: {old.key.short}, built at THEN as one.cl)")


def test_a_target_that_was_never_built_says_so_first(missed: Callable[..., Miss], ready: Ready) -> None:
    """A program built only for another device was never built for this one; the differences come after."""
    old = ready(KERNEL, implementation="pocl")
    miss = missed(ready(KERNEL, implementation="intel", device="another"), old)
    assert miss.verdict is Verdict.NEVER_BUILT
    assert miss.detail.startswith("show was never built for opencl:intel/cpu, but for opencl:pocl/cpu: ")


def test_a_device_that_is_called_otherwise_is_the_same(missed: Callable[..., Miss], ready: Ready) -> None:
    """A target may get a longer name next to a similar one; it is still the same device."""
    old = ready(KERNEL, implementation="pocl", options=["-DN=4"])
    request = old.request._replace(target=Target("opencl", "pocl-3.0/cpu"), options=("-DN=8",))
    wanted = prepare(load_backend("opencl"), request, old.compilation.inputs.toolchain, {})
    miss = missed(wanted, old)
    assert (miss.verdict, miss.detail.partition(" (")[0]) == (Verdict.KEY_CHANGED, "the define N: 4 -> 8")


def test_another_order_is_nearer_than_another_value(missed: Callable[..., Miss], ready: Ready) -> None:
    """A changed order of options is reported, although a newer entry differs in one value."""
    near, far = ready(options=["-DT=double", "-DN=4"]), ready(options=["-DN=4", "-DT=float"])
    miss = missed(ready(options=["-DN=4", "-DT=double"]), near, far)
    assert miss.detail.startswith("the options are in another order (")


def test_a_record_is_bounded_and_readable(missed: Callable[..., Miss], ready: Ready) -> None:
    """A journal line names program, target, key and verdict, with at most eight differences."""
    environ = {f"NVRTC_{number}": "x" for number in range(9)}
    wanted = ready(environ=environ)
    miss = missed(wanted, ready())
    request = wanted.request
    record = miss_record(Stores(), request.program.name, str(request.target), wanted.key, miss, 1)
    assert len(miss.differences) == 9
    assert record["differences"] == [
        {"label": f"environment NVRTC_{number}", "left": None, "right": "x"} for number in range(8)
    ]
    assert (record["program"], record["target"], record["key"], record["verdict"], record["when_ns"]) == (
        "show",
        "cuda:compute_90",
        str(wanted.key),
        "key-changed",
        1,
    )


def test_only_builds_that_can_be_nearer_are_read(
    ready: Ready, stores: Stores, keep: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads give a lower bound of the distance, so that few of many details are read."""
    keep(*(ready(KERNEL, options=[f"-DN={number}", *["-DM"] * (number != 3)]) for number in range(6)))
    keep(ready(KERNEL + b"// edited\n", options=["-DN=3"]))
    read: list[CacheKey] = []
    detail = DirectoryStore.detail

    def counted(store: DirectoryStore, key: CacheKey) -> EntryDetail | None:
        read.append(key)
        return detail(store, key)

    monkeypatch.setattr(DirectoryStore, "detail", counted)
    miss = look_up(stores, ready(KERNEL, options=["-DN=9"]))
    assert isinstance(miss, Miss)
    assert miss.detail.startswith("the define N: 3 -> 9")
    assert read == [miss.nearest]


def test_of_many_builds_few_entries_are_opened(
    ready: Ready, stores: Stores, keep: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events record options and source, so that a miss costs the same after one build and after hundreds."""
    keep(*(ready(KERNEL, options=[f"-DN={number}", "-DM"]) for number in range(50)))
    opened: list[CacheKey] = []
    look_at = DirectoryStore.look_at

    def counted(store: DirectoryStore, key: CacheKey) -> ScannedEntry | None:
        opened.append(key)
        return look_at(store, key)

    monkeypatch.setattr(DirectoryStore, "look_at", counted)
    miss = look_up(stores, ready(KERNEL + b"// edited\n", options=["-DN=7", "-DM"]))
    assert isinstance(miss, Miss)
    assert miss.detail.startswith("the source changed")
    miss = look_up(stores, ready(KERNEL, options=["-DN=99", "-DM"]))
    assert isinstance(miss, Miss)
    assert miss.detail.startswith("the define N: 49 -> 99")
    assert len(opened) < 10


def test_builds_whose_options_are_not_recorded_are_compared(
    ready: Ready, stores: Stores, keep: Callable[..., None], store: DirectoryStore
) -> None:
    """A history without options, such as an older version's, still leads to the nearest build."""
    near, far = ready(KERNEL, options=["-DN=1"]), ready(KERNEL, options=["-DM=1", "-DO"])
    keep(near, far)
    path = store.root / "v1" / "log.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        del line["options"]
    path.write_bytes(b"".join(map(line_of, lines)))
    miss = look_up(stores, ready(KERNEL, options=["-DN=2"]))
    assert isinstance(miss, Miss)
    assert miss.nearest == near.key
