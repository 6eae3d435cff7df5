"""Files laid by the rules of TorchInductor's cache, and what is said of those that break them."""

import fcntl
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.registry import of_others
from tests.caches.inductor.build import GRAPH, LIBRARY, name, put, put_library, put_module
from tests.caches.opened import HOUR_NS, kinds, only, opened

SYSTEM = of_others("inductor")
OTHERS = LIBRARY + f"\0c{name(b'library 1')}.main.cpp\0".encode()
"""A library that names another one's source."""


def test_a_graph_is_one_entry_with_all_its_guards(tmp_path: Path) -> None:
    """Graphs with gradients are next to the others."""
    put(tmp_path)
    put(tmp_path, data=pickle.dumps("for other guards"))
    put(tmp_path, kind="aotautograd")
    cache = SYSTEM.open(Location("inductor", str(tmp_path), "--cache", enabled=True))
    found = sorted((entry.artifact_kind, dict(entry.fields)["versions"]) for entry in cache.scan())
    assert found == [("compiled graph", "2"), ("compiled graph with gradients", "1")]
    assert not [one for entry in cache.scan() for one in cache.check(entry).findings]


def test_gradients_of_older_versions_lie_a_folder_deeper(tmp_path: Path) -> None:
    """As graphs without gradients do today."""
    path = put(tmp_path, kind="aotautograd")
    deeper = path.parent.parent / path.parent.name[1:3]
    deeper.mkdir()
    path.parent.rename(deeper / path.parent.name)
    cache = opened(SYSTEM, tmp_path)
    assert only(cache).artifact_kind == "compiled graph with gradients" and not list(cache.leftovers())


def test_generated_code_and_its_libraries_are_entries(tmp_path: Path) -> None:
    """A library is one with its source, and gives itself when it is extracted."""
    put_module(tmp_path)
    put_library(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    found = {entry.artifact_kind: entry for entry in cache.scan()}
    assert set(found) == {"generated code", "library"} and cache.extract(found["library"]) == LIBRARY
    assert not [one for entry in found.values() for one in cache.check(entry).findings]
    assert not list(cache.leftovers())


@pytest.mark.parametrize(
    ("laid", "data", "kind", "words"),
    [
        (put_library, b"", FindingKind.TRUNCATED, "ends with an error at every start"),
        (put_library, LIBRARY[:-3], FindingKind.CORRUPT, "ends with an error at every start"),
        (put_library, OTHERS, FindingKind.MISLABELLED, "another source"),
        (put_library, b"garbage", FindingKind.MISLABELLED, "ends with an error at every start"),
        (put_module, b"", FindingKind.TRUNCATED, "ends with an error at every start"),
        (put_module, b"<html>", FindingKind.CORRUPT, "does not begin as a Python module"),
        (put_module, b"# AOT ID: ['0_inference']\nevil()\n", FindingKind.CORRUPT, "runs it nevertheless"),
    ],
)
def test_damaged_code_is_found_and_removed(
    laid: Callable[[Path], Path], data: bytes, kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """With what it was compiled from; a graph that names it has it compiled again."""
    graph, path = put(tmp_path), laid(tmp_path)
    path.write_bytes(data)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = (one for one in cache.scan() if one.path == str(path))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired
    assert not path.parent.exists() and graph.exists()


def test_a_module_with_more_in_its_name_than_it_holds_is_not_judged(tmp_path: Path) -> None:
    """As of a template, in whose name its choices are as well."""
    path = put_module(tmp_path)
    path.write_bytes(b"import triton\n")
    cache = opened(SYSTEM, tmp_path)
    assert not cache.check(only(cache)).findings


def test_a_library_that_is_being_compiled_stays(tmp_path: Path) -> None:
    """TorchInductor holds a lock for each."""
    path = put_library(tmp_path)
    place = tmp_path / "locks" / f"{path.name.partition('.')[0]}.lock"
    place.parent.mkdir()
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    with place.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = cache.remove(entry, "test")
        assert kept is not None and "is building it" in kept.reason and path.exists()
    assert cache.remove(entry, "test") is None and not path.exists()


@pytest.mark.parametrize(("data", "kind"), [(b"", FindingKind.TRUNCATED), (GRAPH[:-1], FindingKind.CORRUPT)])
def test_a_file_that_is_not_called_by_what_it_holds_is_found_and_removed(
    data: bytes, kind: FindingKind, tmp_path: Path
) -> None:
    """With its directory; other graphs stay."""
    other = put(tmp_path, 1)
    path = put(tmp_path)
    path.write_bytes(data)
    cache = SYSTEM.open(Location("inductor", str(tmp_path), "--cache", enabled=True))
    (entry,) = (one for one in cache.scan() if one.path == str(path))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and cache.repair(checked, entry).findings[0].repaired
    assert not path.parent.exists() and other.exists()


@pytest.mark.parametrize(
    ("environ", "place", "decided_by"),
    [
        ({"USER": "me"}, "/tmp/torchinductor_me", "default"),
        ({"USER": "me", "LOGNAME": "you", "TMPDIR": "/scratch"}, "/scratch/torchinductor_you", "TMPDIR"),
        ({"USER": "me", "TORCHINDUCTOR_CACHE_DIR": "/caches"}, "/caches", "TORCHINDUCTOR_CACHE_DIR"),
    ],
)
def test_it_lies_among_temporary_files_unless_a_variable_moves_it(
    environ: dict[str, str], place: str, decided_by: str, clean_session: Path
) -> None:
    """The most common reason for a cold start after a boot."""
    (location,) = SYSTEM.locations(environ)
    below = clean_session if decided_by == "default" else ""
    assert (location.root, location.decided_by) == (f"{below}{place}", decided_by)


def test_headers_that_were_compiled_ahead_are_its_own(tmp_path: Path) -> None:
    """Alone in the directory, they make it no other's."""
    (tmp_path / "precompiled_headers").mkdir()
    assert not list(opened(SYSTEM, tmp_path).leftovers())


def test_what_a_dead_writer_left_is_removed(tmp_path: Path) -> None:
    """Half a pickle, under the name that it has until it is whole."""
    path = put(tmp_path).with_name(".99999999.34.tmp")
    path.write_bytes(b"\x80half")
    cache = opened(SYSTEM, tmp_path, path.stat().st_mtime_ns + 2 * HOUR_NS)
    (left,) = cache.leftovers()
    assert kinds(left) == [FindingKind.LEFTOVER] and cache.repair(left, None).findings[0].repaired
    assert not path.exists()
