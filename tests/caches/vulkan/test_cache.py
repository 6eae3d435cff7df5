"""Which files are pipeline caches, whose they are, and what is wrong with them."""

import os
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others, system_at
from tests.caches.opened import HOUR_NS, kinds, only, opened
from tests.caches.vulkan import build

SYSTEM = of_others("vulkan")

UUID = "000102030405060708090a0b0c0d0e0f"


def test_an_entry_names_its_device_and_its_driver(tmp_path: Path) -> None:
    """As its header does; it is GTK's by its name."""
    build.put(tmp_path, content=build.data(more=b"pipelines"))
    entry = only(opened(SYSTEM, tmp_path))
    assert (entry.program, entry.target, entry.artifact_kind) == (
        "GTK",
        "vulkan:10de:2330",
        "vulkan-pipelines",
    )
    assert entry.fields == (("vendor", "NVIDIA"), ("device", "0x2330"), ("UUID", UUID))


def test_in_a_folder_of_ones_own_the_content_decides(tmp_path: Path) -> None:
    """A file is one by how it begins, whatever it is called; all else is neither told nor removed."""
    (tmp_path / "my.pipelines").write_bytes(build.data())
    (tmp_path / "static.bin").write_bytes(b"mine, and dear to me")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "static.bin")
    assert system_at(tmp_path) is SYSTEM
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert entry.program == "my.pipelines" and not list(cache.leftovers())
    assert cache.remove(entry, "--all") is None
    assert {path.name for path in tmp_path.iterdir()} == {"static.bin", "folder", "link"}


def test_blenders_is_looked_for_beside_gtks(tmp_path: Path) -> None:
    """Where it is there; its payload is what Blender hands to the driver."""
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert [Path(one.root).name for one in SYSTEM.locations(environ)] == ["vulkan-pipeline-cache"]
    folder = tmp_path / "blender" / "vk-pipeline-cache"
    folder.mkdir(parents=True)
    (folder / "static.bin").write_bytes(build.blender(build.data(more=b"pipelines")))
    _, place = SYSTEM.locations(environ)
    cache = SYSTEM.open(place)
    entry = only(cache)
    assert (place.root, place.enabled, entry.program) == (str(folder), True, "Blender")
    assert cache.extract(entry) == build.data(more=b"pipelines") and not cache.check(entry).findings


@pytest.mark.parametrize("program", ["Blender", "Godot"])
def test_a_program_with_a_header_of_its_own(program: str, tmp_path: Path) -> None:
    """It says how long the driver's bytes are, so that what is missing of them is found."""
    write = getattr(build, program.lower())
    file = tmp_path / "pipelines.cache"
    file.write_bytes(write(build.data(more=b"pipelines")) + b"older bytes")
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert (entry.program, entry.target) == (program, "vulkan:10de:2330")
    assert not cache.check(entry).findings and cache.extract(entry) == build.data(more=b"pipelines")
    file.write_bytes(write(build.data(), size=99))
    checked = cache.check(only(cache))
    assert kinds(checked) == [FindingKind.TRUNCATED] and "67 of the bytes" in checked.findings[0].detail


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", FindingKind.TRUNCATED),
        (build.DATA[:20], FindingKind.CORRUPT),
        (b"no pipeline cache", FindingKind.MISLABELLED),
    ],
)
def test_what_is_no_pipeline_cache_is_found_by_gtks_name(
    tmp_path: Path, content: bytes, kind: FindingKind
) -> None:
    """And removed by a repair where another entry shows whose the folder is."""
    build.put(tmp_path, 1)
    bad = build.put(tmp_path, 2, content)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = [one for one in cache.scan() if one.path == str(bad)]
    checked = cache.check(entry)
    assert kinds(checked) == [kind]
    assert cache.repair(checked, entry).findings[0].repaired and not bad.exists()


def test_what_a_writer_left_is_told(tmp_path: Path) -> None:
    """GTK writes aside and renames."""
    file = tmp_path / ".goutputstream-AB12CD"
    file.write_bytes(build.DATA[:16])
    build.put(tmp_path)
    cache = opened(SYSTEM, tmp_path, now_ns=file.stat().st_mtime_ns + 2 * HOUR_NS)
    (left,) = cache.leftovers()
    assert kinds(left) == [FindingKind.LEFTOVER] and cache.repair(left, None).findings[0].repaired
    assert not file.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may wait for its other end."""
    os.mkfifo(tmp_path / "pipe")
    asked, really = [], os.open

    def opening(path: str, *rest: int, **more: int | None) -> int:
        asked.append(str(path))
        return really(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", opening)
    assert not SYSTEM.recognises(tmp_path) and not list(opened(SYSTEM, tmp_path).scan())
    assert str(tmp_path) in asked and "pipe" not in asked
