"""Folders laid by the rules of TileLang's cache, and what is said of those that break them."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.deep_gemm.build import CUBIN
from tests.caches.opened import HOUR_NS, kinds, only, opened
from tests.caches.tilelang.build import KERNEL, LIBRARY, VERSION, key, lay, put, put_binary, put_tuned

SYSTEM = of_others("tilelang")


def test_a_kernel_says_its_name_target_and_version(tmp_path: Path) -> None:
    """From its source, the cubin inside its library, and the folder of the version."""
    put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert (entry.key, entry.program, entry.target, entry.artifact_kind) == (
        key(0), KERNEL, "cuda:sm_90", "elf",
    )  # fmt: skip
    assert entry.toolchain == (("TileLang", VERSION),)
    assert not cache.check(entry).findings and cache.extract(entry) == LIBRARY


def test_binaries_and_what_tuning_found_are_entries_of_their_own(tmp_path: Path) -> None:
    """Each says in which of the three folders it lies."""
    put(tmp_path, 0), put_binary(tmp_path, 1), put_tuned(tmp_path, 2)
    cache = opened(SYSTEM, tmp_path)
    assert {entry.key: dict(entry.fields)["holds"] for entry in cache.scan()} == {
        key(0): "kernels", key(1): "cuda-binaries", key(2): "autotuner",
    }  # fmt: skip
    assert not [one for entry in cache.scan() for one in cache.check(entry).findings]
    assert cache.extract(cache.find(key(1))[0]) == CUBIN


def test_the_form_of_older_versions_is_read_as_well(tmp_path: Path) -> None:
    """A folder in the root, with pickled parameters and without a manifest."""
    lay(tmp_path / key(0), {"kernel.cu": b"", "kernel_lib.so": LIBRARY, "params.pkl": b"\x80\x04N."})
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert not cache.check(entry).findings and cache.extract(entry) == LIBRARY


def test_two_kernels_differ_by_their_sources(tmp_path: Path) -> None:
    """They are all that is kept of the inputs."""
    put(tmp_path, 0), put(tmp_path, 1)
    cache = opened(SYSTEM, tmp_path)
    reports = [{one.label: one.value for one in cache.report(entry).key_fields} for entry in cache.scan()]
    differing = {label for label in reports[0] if reports[0][label] != reports[1][label]}
    assert differing == {"key", "SHA-256 of device_kernel.cu"}


def _write(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def _listed(*names: str) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        there = {name: folder / name for name in names}
        told = {name: path.read_bytes() if path.exists() else b"" for name, path in there.items()}
        files = {name: {"size": len(data), "sha256": sha256(data).hexdigest()} for name, data in told.items()}
        (folder / "manifest.json").write_text(json.dumps({"files": files}))

    return write


def _gone(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("laid", "damage", "kind", "words"),
    [
        (put, _write("executable.so", LIBRARY[:-3]), FindingKind.TRUNCATED, "compiles it again"),
        (put, _write("executable.so", LIBRARY[:-1] + b"!"), FindingKind.CORRUPT, "compiles it again"),
        (put, _write("params.json", b"[]"), FindingKind.CORRUPT, "compiles it again"),
        (put, _write("host_kernel.cu", b"// tsoh"), FindingKind.CORRUPT, "serves the kernel all the same"),
        (put, _write("manifest.json", b"{"), FindingKind.CORRUPT, "compiles it again"),
        (put, _write("manifest.json", b"[" * 100_000), FindingKind.CORRUPT, "compiles it again"),
        (put, _gone("manifest.json"), FindingKind.TRUNCATED, "compiles it again"),
        (put, _gone("executable.so"), FindingKind.TRUNCATED, "its binary is gone"),
        (put, _listed("launcher.cpp", "executable.so"), FindingKind.TRUNCATED, "launcher.cpp is gone"),
        (put, _listed("params.json"), FindingKind.CORRUPT, "names no binary"),
        (put_binary, _write("kernel.cubin", CUBIN[:-3]), FindingKind.TRUNCATED, "never writes it anew"),
        (put_binary, _gone("metadata.json"), FindingKind.TRUNCATED, "never writes it anew"),
        (put_tuned, _gone("best_config.json"), FindingKind.TRUNCATED, "ends with an error"),
        (put_tuned, _write("executable.so", b"garbage"), FindingKind.CORRUPT, "ends with an error"),
        (put_tuned, _write("executable.so", LIBRARY[:-3]), FindingKind.CORRUPT, "ends with an error"),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    laid: Callable[[Path], Path],
    damage: Callable[[Path], object],
    kind: FindingKind,
    words: str,
    tmp_path: Path,
) -> None:
    """A repair removes the entry's folder, so that TileLang compiles it again, and leaves the others."""
    other, folder = put(tmp_path, 1), laid(tmp_path)
    damage(folder)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(key(0))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired
    assert not folder.exists() and other.exists()


def test_a_folder_with_something_else_in_it_stays_whole(tmp_path: Path) -> None:
    """TileLang removes a folder of its own that is not complete, with all that is in it."""
    folder = put(tmp_path)
    (folder / "notes.txt").write_bytes(b"mine")
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert "notes.txt" in entry.stays and cache.remove(entry, "test") is not None
    assert len(list(folder.iterdir())) == 6


def test_what_a_stopped_writer_leaves_is_told_and_swept(tmp_path: Path) -> None:
    """It lies below ``.staging``, where TileLang makes the folders that it renames."""
    put(tmp_path)
    staged = tmp_path / VERSION / "linux-x86_64" / ".staging" / f"{key(7)}_4711_0123abcd"
    left = lay(staged, {"params.json": b"{"}) / "params.json"
    cache = opened(SYSTEM, tmp_path, left.stat().st_mtime_ns + 2 * HOUR_NS)
    (found,) = cache.leftovers()
    assert kinds(found) == [FindingKind.LEFTOVER]
    assert cache.repair(found, None).findings[0].repaired and not left.exists()
