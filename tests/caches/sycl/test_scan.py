"""What a scan and a report tell of entries."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpucache.errors import FormatError
from tests.caches.sycl.build import DEVICE, NOW_NS, Made, copy, framed, kernel_folder, opened, put, spirv


def test_an_entry_is_read_from_the_heads_of_its_files(tmp_path: Path) -> None:
    """Program, target, options and toolchain are what the .src says."""
    put(tmp_path, Made(image=spirv("_ZTS1K", "_ZTS1L"), options=b"-O1"))

    (entry,) = opened(tmp_path).scan()

    assert entry.program == "K and 1 more"
    assert [value for label, value in entry.fields if label == "kernel"] == ["_ZTS1K", "_ZTS1L"]
    assert entry.target == "Some OpenCL/Some GPU"
    assert entry.variant.startswith("-O1 image ")
    assert entry.artifact_kind == "spir-v"
    assert dict(entry.toolchain)["driver version"] == "1.2.3"
    assert entry.damage is None


def test_a_slash_in_a_device_name_stays_in_it(tmp_path: Path) -> None:
    """Version and driver are the last two parts."""
    put(tmp_path, Made(device=b"P/GPU A/B/OpenCL 3/9"))

    (entry,) = opened(tmp_path).scan()

    assert dict(entry.toolchain)["device name"] == "GPU A/B"


def test_a_device_string_of_another_form_is_shown_whole(tmp_path: Path) -> None:
    """Nothing is made up of it."""
    put(tmp_path, Made(device=b"nothing known"))

    (entry,) = opened(tmp_path).scan()

    assert (entry.target, entry.toolchain) == ("nothing known", ())


def test_the_last_use_is_the_programs_own_note(tmp_path: Path) -> None:
    """Where it is later than the files."""
    folder = put(tmp_path)
    (folder / "0_access_time.txt").write_text(str(10**19 - 1))

    (entry,) = opened(tmp_path).scan()

    assert entry.last_used_ns == 10**19 - 1


def test_an_access_time_of_the_file_counts_where_it_tells_of_a_read(tmp_path: Path) -> None:
    """Without eviction libsycl renews no note."""
    folder = put(tmp_path)
    later = (folder / "0.bin").stat().st_ctime_ns + 5_000_000_000
    os.utime(folder / "0.bin", ns=(later, NOW_NS))

    (entry,) = opened(tmp_path).scan()

    assert (entry.created_ns, entry.last_used_ns) == (NOW_NS, max(later, entry.last_used_ns))
    assert entry.last_used_ns == later


def test_a_number_behind_the_digits_names_one_entry(tmp_path: Path) -> None:
    """Behind all of them, as inspect prints the key, or some."""
    folder = put(tmp_path)
    copy(folder, 0, 1)
    copy(folder, 0, 10)
    cache = opened(tmp_path)
    key = next(iter(cache.scan())).key.partition("-")[0]

    for digits in (key, key[:12]):
        assert [entry.key for entry in cache.find(f"{digits}-1")] == [f"{key}-1"]
    assert len(cache.find(key)) == len(cache.find(f"{key}-")) == 3
    assert cache.find(f"{key}0-1") == []


def test_the_number_tells_copies_apart(tmp_path: Path) -> None:
    """One key, two numbers."""
    folder = put(tmp_path)
    copy(folder, 0, 1)

    first, second = opened(tmp_path).scan()

    assert (first.key[:-2], first.key[-2:], second.key[-2:]) == (second.key[:-2], "-0", "-1")


def test_an_entry_behind_a_hole_is_damaged(tmp_path: Path) -> None:
    """A listing alone tells."""
    put(tmp_path, number=2)

    (entry,) = opened(tmp_path).scan()

    assert str(entry.damage).startswith("misplaced: programs stop looking at 0")


def test_a_cut_entry_is_damaged(tmp_path: Path) -> None:
    """Its key fields are still shown."""
    folder = put(tmp_path)
    os.truncate(folder / "0.bin", 30)

    (entry,) = opened(tmp_path).scan()

    assert str(entry.damage).startswith("truncated: ")
    assert entry.program == "first_kernel"


def test_a_linked_file_is_not_read(tmp_path: Path) -> None:
    """Nor is what it leads to."""
    folder = put(tmp_path / "cache")
    (tmp_path / "other").write_bytes((folder / "0.bin").read_bytes())
    (folder / "0.bin").unlink()
    (folder / "0.bin").symlink_to(tmp_path / "other")

    (entry,) = opened(tmp_path / "cache").scan()

    assert "is a link" in str(entry.damage)


def test_kernel_compiler_entries_are_opaque(tmp_path: Path) -> None:
    """They have no .src."""
    folder = kernel_folder(tmp_path)
    (folder / "0.bin").write_bytes(Made().binary)

    (entry,) = opened(tmp_path).scan()

    assert entry.program.startswith("kernel_compiler binary ")
    assert (entry.unique, entry.damage) == (True, None)


def test_a_report_has_every_key_field(tmp_path: Path) -> None:
    """Device, options, spec constants, image and its entry points, number and folders."""
    put(tmp_path, Made(spec=b"\x01\x02", image=spirv("k1", "k2")))
    cache = opened(tmp_path)
    (entry,) = cache.scan()

    report = cache.report(entry)

    values = [(field.label, field.value) for field in report.key_fields]
    assert ("platform name", "Some OpenCL") in values
    assert ("build options", "-cl-fast") in values
    assert ("spec constants", "2 bytes 0102") in values
    assert [value for label, value in values if label == "kernel"] == ["k1", "k2"]
    assert ("number", "0") in values
    assert dict(report.payload)["kind"] == "spir-v"


def test_a_report_of_kernel_compiler_says_what_is_unknown(tmp_path: Path) -> None:
    """Only the hashes are there."""
    folder = kernel_folder(tmp_path)
    (folder / "0.bin").write_bytes(Made().binary)
    cache = opened(tmp_path)
    (entry,) = cache.scan()

    assert "not stored by a kernel_compiler binary" in cache.report(entry).key_fields[0].value


def test_extract_refuses_what_is_not_sound(tmp_path: Path) -> None:
    """The reason is told."""
    put(tmp_path, replace(Made(), compiled=spirv("k")[:-2]))
    cache = opened(tmp_path)
    (entry,) = cache.scan()

    with pytest.raises(FormatError, match="is mislabelled: its binary is broken"):
        cache.extract(entry)


def test_a_long_device_string_is_cut_for_showing(tmp_path: Path) -> None:
    """A scan reads a bounded part of every field."""
    folder = put(tmp_path)
    source = framed(DEVICE + b"x" * 200_000) + framed(b"") + framed(b"") + framed(spirv("k"))
    (folder / "0.src").write_bytes(source)

    (entry,) = opened(tmp_path).scan()

    assert len(entry.target) < 5000
    assert entry.program == "k"
