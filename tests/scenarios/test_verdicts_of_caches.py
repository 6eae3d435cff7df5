"""What a person is told when a cache, an entry or a record is not what it was: the verdict and the words."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpucache.assembly import backends, open_stores
from gpucache.engine.warm.plan import WarmItem
from gpucache.engine.warm.run import Session
from gpucache.keys import digest
from gpucache.model import Entry
from gpucache.settings import read_settings
from gpucache.store import Event, Found
from tests.children import run_text

_NOBODY = 65534
_INTEL = {
    "platform": "Intel(R) OpenCL",
    "source": "kernel void show(global int *out) { out[get_global_id(0)] = 7; }",
}


def _evicted(parts: Any) -> Any:
    parts.built()
    done = parts.gpucache(parts.root, "evict", "--program", "show")
    assert done.returncode == 0, done.stderr
    return parts.asked()


def _damaged(parts: Any) -> Any:
    parts.built()
    (path,) = parts.root.rglob("*.gpc")
    sound = path.read_bytes()
    path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    return parts.asked()


def _disabled(parts: Any) -> Any:
    prepared = parts.built()
    return parts.tell(parts.stores(GPUCACHE_DISABLE="1"), prepared)


def _in_default_root(parts: Any) -> Any:
    prepared = parts.built()
    shutil.move(parts.root, Path(os.environ["XDG_CACHE_HOME"], "gpucache"))
    return parts.tell(parts.stores(), prepared)


def _in_named_root(parts: Any) -> Any:
    prepared = parts.built()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUCACHE_DIR", str(parts.root))
        chosen = open_stores(read_settings(os.environ, root=str(parts.tmp / "other")))
        return parts.tell(chosen, prepared)


def _root_is_a_file(parts: Any) -> Any:
    (parts.tmp / "file").write_bytes(b"")
    return parts.tell(parts.stores(root=parts.tmp / "file"), parts.ready())


_ASK_AS_NOBODY = """
import os, sys
from pathlib import Path
import platformdirs.unix  # while Python's own modules may be read
from gpucache.assembly import open_stores
from gpucache.engine.explain import explain
from gpucache.engine.stores import NoEntry
from gpucache.settings import Settings
from types import SimpleNamespace
os.setgroups([])
os.setgid({0})
os.setuid({0})
stores = open_stores(Settings(root=Path(sys.argv[1]), root_origin="GPUCACHE_DIR"))
miss = explain(stores, SimpleNamespace(refusal=None), NoEntry())
sys.stdout.write(miss.verdict.value + " " + miss.detail)
"""


def _root_of_another_user(parts: Any) -> Any:
    prepared = parts.built()
    if os.geteuid() != 0:
        parts.root.chmod(0)
        told = parts.tell(parts.stores(), prepared)
        parts.root.chmod(0o700)
        return told
    done = run_text([sys.executable, "-c", _ASK_AS_NOBODY.format(_NOBODY), str(parts.root)])
    assert done.returncode == 0, done.stderr
    verdict, _, detail = done.stdout.partition(" ")
    return replace(parts.tell(parts.stores(GPUCACHE_DISABLE="1"), prepared), verdict=verdict, detail=detail)


def _root_is_a_file_beside_a_system_root(parts: Any) -> Any:
    parts.built()
    (parts.tmp / "file").write_bytes(b"")
    stores = parts.stores(root=parts.tmp / "file", GPUCACHE_SYSTEM_DIRS=str(parts.root))
    return parts.tell(stores, parts.ready("int y;", name="solver"))


def _newer_format(parts: Any) -> Any:
    wanted = parts.built(options=["-DN=4"])
    (path,) = parts.root.rglob("*.gpc")
    data = bytearray(path.read_bytes())
    data[8] += 1
    path.write_bytes(data)
    parts.built(options=["-DN=8"])
    return parts.tell(parts.stores(), wanted)


def _record_lost(parts: Any) -> Any:
    parts.built()
    shutil.rmtree(parts.root / "v1" / "programs")
    return parts.asked(options=["-DN=8"])


def _record_lost_of_another_name(parts: Any) -> Any:
    parts.built(name="show.cu")
    shutil.rmtree(parts.root / "v1" / "programs")
    return parts.asked(options=["-DN=8"])


def _record_gave_way(parts: Any) -> Any:
    parts.built()
    done = parts.gpucache(parts.root, "evict", "--max-size", "1B")
    assert done.returncode == 0, done.stderr
    assert not list(parts.root.glob("v1/programs/*"))
    return parts.asked()


def _evicted_with_its_record(parts: Any) -> Any:
    parts.built()
    parts.built("int x;", name="other")
    done = parts.gpucache(parts.root, "evict", "--all", "--yes")
    assert done.returncode == 0, done.stderr
    return parts.asked()


def _never_built_before_all_went(parts: Any) -> Any:
    parts.built()
    done = parts.gpucache(parts.root, "evict", "--all", "--yes")
    assert done.returncode == 0, done.stderr
    return parts.asked("int y;", name="solver")


def _never_built(parts: Any) -> Any:
    parts.built(name="other.cu")
    return parts.asked("int y;", name="solver")


def _never_built_among_many(parts: Any) -> Any:
    for number in range(65):
        parts.built(f"int x{number};", name="other")
    return parts.asked("int y;", name="solver")


def _poisoned(parts: Any) -> Any:
    prepared = parts.ready(version="2.0")
    request, toolchain = prepared.request, prepared.compilation.inputs.toolchain
    parts.built()
    poisoned = Event(time.time_ns(), "poisoned", str(prepared.key), str(request.target), "it ran 300 s")
    parts.store.record("show", poisoned)
    item = WarmItem("show", str(request.target), "", request, toolchain)

    def build(job: object) -> Any:
        raise AssertionError("a poisoned program was built")

    session = Session(parts.stores, backends(), {}, lambda _: None, 1, 1.0, build=build)
    (outcome,) = session.run(parts.stores(), [item], [])
    told = parts.asked(version="2.0")
    assert (outcome.verdict, outcome.reason) == (told.verdict, told.detail)
    return told


def _rejected(parts: Any) -> Any:
    parts.program("opencl", parts.root, _INTEL)
    (scanned,) = parts.store.scan()
    found, detail = parts.store.get(scanned.key), parts.store.detail(scanned.key)
    assert isinstance(found, Found)
    assert detail is not None
    garbage = b"\x7fnot a binary of any driver"
    head = found.head._replace(payload_sha256=digest(garbage))
    parts.store.publish(Entry(scanned.key, head, detail, garbage))
    parts.program("opencl", parts.root, _INTEL)
    return parts.last()


STATES: dict[str, tuple[Callable[[Any], Any], str, tuple[str, ...]]] = {
    "evicted": (_evicted, "evicted", ("removed at ", "show")),
    "damaged": (_damaged, "corrupt", ("the entry was damaged: ", "was moved to quarantine")),
    "disabled": (_disabled, "not-consulted", ("GPUCACHE_DISABLE is set",)),
    "in-default-root": (
        _in_default_root,
        "not-consulted",
        ("it is in {default}, but only {tmp}/cache was queried",),
    ),
    "in-named-root": (
        _in_named_root,
        "not-consulted",
        ("it is in {tmp}/cache, but only {tmp}/other was queried",),
    ),
    "root-is-a-file": (_root_is_a_file, "not-consulted", ("the cache root {tmp}/file is not a directory",)),
    "root-is-a-file-beside-a-system-root": (
        _root_is_a_file_beside_a_system_root,
        "not-consulted",
        (
            "the cache root {tmp}/file is not a directory",
            "nothing was ever built as solver in {tmp}/cache",
        ),
    ),
    "newer-format": (
        _newer_format,
        "not-recorded",
        ("is in {tmp}/cache, but the entry is not for this version: ",),
    ),
    "root-of-another-user": (
        _root_of_another_user,
        "not-consulted",
        ("the cache root {tmp}/cache cannot be opened: Permission denied; fix its permissions, or name",),
    ),
    "record-lost": (
        _record_lost,
        "not-recorded",
        ("of show, built ", "is in {tmp}/cache, but its record was lost, or is written at this moment"),
    ),
    "record-lost-of-another-name": (
        _record_lost_of_another_name,
        "not-recorded",
        ("{tmp}/cache has entries, but the record of builds as show or anything else was lost",),
    ),
    "record-gave-way": (
        _record_gave_way,
        "not-recorded",
        (
            "it is no longer known whether show was ever built into {tmp}/cache: its record was removed at",
            ", because only so much is kept of past builds",
        ),
    ),
    "evicted-with-its-record": (
        _evicted_with_its_record,
        "evicted",
        (": --all, with the build history of show",),
    ),
    "never-built-before-all-went": (
        _never_built_before_all_went,
        "never-built",
        ("nothing was ever built as solver in {tmp}/cache",),
    ),
    "never-built": (_never_built, "never-built", ("nothing was ever built as solver in {tmp}/cache",)),
    "never-built-among-many": (
        _never_built_among_many,
        "never-built",
        ("no build of solver is recorded in {tmp}/cache",),
    ),
    "poisoned": (_poisoned, "poisoned", ("it ran 300 s; warm --retry tries it again",)),
    "rejected": (_rejected, "rejected", ("the driver rejected the binary",)),
}


_SLOW = (
    *("rejected", "never-built-among-many", "root-of-another-user", "evicted", "record-gave-way"),
    *("evicted-with-its-record", "never-built-before-all-went"),
)  # which start other processes, or build much


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in _SLOW else []) for name in STATES]
)
def test_what_became_of_an_entry_is_told(parts: Any, name: str) -> None:
    """Whatever happened to a cache, the verdict fits, and the words name the place and the reason."""
    happened, verdict, words = STATES[name]
    parts.fits(name, happened(parts), verdict, words)
