"""PoCL's programs as entries: what a scan, a report and an extraction say."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from gpucache.errors import FormatError
from tests.caches.pocl import build
from tests.payload.build import bitcode

SYSTEM = of_others("pocl")


def test_a_program_is_an_entry(tmp_path: Path) -> None:
    """Kernels, target, size and times of a program are reported."""
    build.program(tmp_path, kernels=["vecadd", "twice", "rev"])
    [entry] = build.cache(tmp_path).scan()
    assert entry.key == bytes(range(20)).hex()[:3] + bytes(range(20)).hex()[4:]
    assert (entry.program, entry.target) == ("vecadd and 2 more", "pocl:x86_64-pc-linux-gnu")
    assert (entry.artifact_kind, entry.variant) == ("llvm-bitcode", "local size 16x1x1")
    assert entry.created_ns == entry.last_used_ns == build.NOW - build.DAY
    held = [Path(entry.path), *Path(entry.path).rglob("*")]
    assert entry.size_bytes == sum(path.stat().st_blocks * 512 for path in held)
    assert (entry.unique, entry.damage) == (True, None)


def test_the_fields_of_an_entry_name_its_llvm(tmp_path: Path) -> None:
    """The fields for evict --unlike are the kernel, the variant, the LLVM and the triple."""
    build.program(tmp_path, llvm="LLVM14.0.6")
    [entry] = build.cache(tmp_path).scan()
    assert entry.fields == (
        ("kernel", "vecadd"),
        ("work-group variant", "vecadd 16x1x1 (global offset 0, small grids only)"),
        ("LLVM", "14.0.6"),
        ("target triple", "x86_64-pc-linux-gnu"),
    )


def test_last_used_is_the_time_of_the_mark(tmp_path: Path) -> None:
    """PoCL touches last_accessed at every build, so its time counts and not the program's."""
    folder = build.program(tmp_path)
    used = build.NOW - 5 * 10**9
    os.utime(folder / "last_accessed", ns=(build.NOW, used))
    [entry] = build.cache(tmp_path).scan()
    assert (entry.created_ns, entry.last_used_ns) == (build.NOW - build.DAY, used)


def test_an_entry_is_found_by_digits_in_either_case(tmp_path: Path) -> None:
    """The beginning of the key selects one program among several."""
    for first in (0x10, 0x20):
        build.program(tmp_path, digest=bytes([first, *range(19)]))
    cache = build.cache(tmp_path)
    [entry] = cache.find("10")
    assert entry.key.startswith("10")
    assert [found.key for found in cache.find(entry.key.upper())] == [entry.key]
    assert cache.find("abcd") == []


def test_a_damaged_program_says_so_in_a_scan(tmp_path: Path) -> None:
    """A program that was emptied is an entry still, named by its kernels' directories."""
    folder = build.program(tmp_path)
    (folder / "program.bc").write_bytes(b"")
    [entry] = build.cache(tmp_path).scan()
    assert (entry.program, str(entry.damage)) == ("vecadd", "truncated: program.bc is empty")


def test_names_on_disk_are_made_printable(tmp_path: Path) -> None:
    """A kernel's directory with bytes that are no text harms no terminal."""
    folder = build.program(tmp_path)
    (folder / "program.bc").write_bytes(b"")
    (Path(os.fsdecode(os.fsencode(folder) + b"/e\xffvil\x1b[0m"))).mkdir()
    [entry] = build.cache(tmp_path).scan()
    assert all(text.isprintable() for text in (entry.program, entry.variant))


def test_a_report_tells_variants_and_log(tmp_path: Path) -> None:
    """Key digits, the compiler of each kernel, the log and the source's place are shown."""
    folder = build.program(tmp_path)
    (folder / "build.log").write_text("warning: unused\n")
    cache = build.cache(tmp_path)
    [entry] = cache.scan()
    report = cache.report(entry)
    assert report.build_log == "warning: unused\n"
    assert report.key_fields[0].value == entry.key
    assert ("kind", "llvm-bitcode") in report.payload
    assert {"/caches/pocl/tempfile_abcdef.cl"} <= {field.value for field in report.key_fields}


def test_a_long_log_is_cut(tmp_path: Path) -> None:
    """Of a build log no more than 64 KiB is read."""
    folder = build.program(tmp_path)
    (folder / "build.log").write_bytes(b"w" * 100_000)
    cache = build.cache(tmp_path)
    [entry] = cache.scan()
    assert len(cache.report(entry).build_log) == 64 << 10


def test_an_extraction_gives_the_bitcode(tmp_path: Path) -> None:
    """The program's own bytes are given, and none of a damaged one."""
    folder = build.program(tmp_path)
    cache = build.cache(tmp_path)
    [entry] = cache.scan()
    assert cache.extract(entry) == bitcode()
    (folder / "program.bc").write_bytes(bitcode()[:-40])
    for ask in (cache.extract, cache.report):
        with pytest.raises(FormatError, match=r"program\.bc is cut"):
            ask(entry)


def test_spirv_alone_is_a_program_too(tmp_path: Path) -> None:
    """Newer PoCLs keep some programs as SPIR-V."""
    folder = build.program(tmp_path)
    (folder / "program.bc").rename(folder / "program.spv")
    (folder / "program.spv").write_bytes(b"not spir-v at all")
    cache = build.cache(tmp_path)
    [entry] = cache.scan()
    assert (entry.artifact_kind, entry.program) == ("spir-v", "vecadd")
    assert [one.kind for one in cache.check(entry).findings] == [FindingKind.CORRUPT]


_NAMES = st.sampled_from(
    ["program.bc", "build.log", "last_accessed", "vecadd", build.SMALL, "vecadd.so", "x"]
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(_NAMES, min_size=1, max_size=4), st.none() | st.binary(max_size=80)), max_size=8
    )
)
def test_whatever_lies_there_is_told(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[list[str], bytes | None]]
) -> None:
    """Any tree of files and folders under PoCL's names is scanned, checked and repaired without an error."""
    root = tmp_path_factory.mktemp("root")
    folder = build.folder_of(root)
    for parts, content in made:
        path = folder.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(exist_ok=True) if content is None else path.write_bytes(content)
        except OSError:  # a file where a directory would be
            continue
    cache = build.cache(root, now_ns=build.NOW * 2)
    found = [(cache.check(entry), entry) for entry in cache.scan()]
    for checked, entry in found:
        cache.repair(checked, entry)
    for checked in list(cache.leftovers()):
        cache.repair(checked, None)
    assert SYSTEM.recognises(root) in (True, False)
