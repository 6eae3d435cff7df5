"""Files laid by the rules of llama.cpp's OpenCL cache, and the words that its variable takes."""

from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.ggml_opencl.build import file_bytes, put
from tests.caches.opened import HOUR_NS, PTX, kinds, only, opened

SYSTEM = of_others("ggml-opencl")

DIR = "GGML_OPENCL_KERNEL_CACHE_DIR"


def test_a_program_says_what_its_binary_is(tmp_path: Path) -> None:
    """Its payload is what the driver gave; the digits that llama.cpp prints find it."""
    put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find("abcd")
    assert (entry.program, entry.artifact_kind) == ("scale", "ptx")
    assert not cache.check(entry).findings and cache.extract(entry) == PTX


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", FindingKind.TRUNCATED, "replaces it"),
        (file_bytes(b""), FindingKind.TRUNCATED, "replaces it"),
        (file_bytes(version=2), FindingKind.CORRUPT, "replaces it"),
        (b"garbage of more than a header's bytes", FindingKind.CORRUPT, "replaces it"),
        (file_bytes(PTX[:-3]), FindingKind.CORRUPT, "or crashes"),
    ],
)
def test_damage_is_told_with_what_comes_of_it_and_repaired(
    data: bytes, kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """Of the header, and of a binary whose format is known."""
    put(tmp_path, 1)
    path = put(tmp_path, data=data)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = [one for one in cache.scan() if one.path == str(path)]
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()


def test_a_binary_that_only_its_driver_knows_is_sound(tmp_path: Path) -> None:
    """As those of Adreno GPUs are."""
    put(tmp_path, data=file_bytes(b"of an Adreno"))
    cache = opened(SYSTEM, tmp_path)
    assert not cache.check(only(cache)).findings


@pytest.mark.parametrize("value", ["", "1", "default", None])
def test_the_default_is_among_temporary_files(tmp_path: Path, value: str | None) -> None:
    """Where TMPDIR has them."""
    root = put(tmp_path / "llama.cpp" / "cl-cache").parent
    environ = {"TMPDIR": str(tmp_path)} | ({} if value is None else {DIR: value})
    (location,) = SYSTEM.locations(environ)
    assert (location.root, location.decided_by, location.enabled) == (str(root), "TMPDIR", True)


def test_a_word_turns_it_off_and_anything_else_is_a_place(tmp_path: Path) -> None:
    """A place that is there is in use."""
    put(tmp_path / "llama.cpp" / "cl-cache")
    (off,) = SYSTEM.locations({"TMPDIR": str(tmp_path), DIR: "none"})
    assert not off.enabled and f"{DIR}=none turns the cache off" in off.problems[0]
    (named,) = SYSTEM.locations({"TMPDIR": "/nowhere", DIR: str(tmp_path)})
    assert (named.root, named.decided_by, named.enabled) == (str(tmp_path), DIR, True)


def test_what_a_writer_left_is_told(tmp_path: Path) -> None:
    """It is called as the file that it was to be, with the writer's number behind."""
    path = put(tmp_path)
    left = path.with_name(path.name + ".tmp.4711")
    left.write_bytes(file_bytes()[:40])
    cache = opened(SYSTEM, tmp_path, now_ns=left.stat().st_mtime_ns + 2 * HOUR_NS)
    (told,) = cache.leftovers()
    assert kinds(told) == [FindingKind.LEFTOVER] and cache.repair(told, None).findings[0].repaired
    assert path.exists() and not left.exists()


def test_what_does_not_begin_as_llama_cpps_files_may_be_somebody_elses(tmp_path: Path) -> None:
    """Nothing beside it shows whose it is, so it stays."""
    put(tmp_path, data=b"somebody's own file, called by a digest")
    assert "may be somebody else's and stays" in only(opened(SYSTEM, tmp_path)).stays
