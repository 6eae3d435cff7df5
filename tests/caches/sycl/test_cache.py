"""The scan, the check and the repair of libsycl's cache."""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpucache.answers.entries import CacheEntry
from gpucache.caches.sycl import murmur64a
from gpucache.engine.staleness import UNUSED_NS, Origins
from gpucache.errors import FormatError
from tests.caches.sycl.build import (
    DEVICE,
    NOW_NS,
    Made,
    copy,
    framed,
    kernel_folder,
    lock,
    opened,
    put,
    repaired,
    snapshot,
    spirv,
    told,
    verified,
)

_INTEL = b"Intel(R) OpenCL/Some CPU/OpenCL 3.0/1"
_LONG = str(10**18)
_HUGE = 6 << 30
Damage = Callable[[Path, Path], object]


def _only(root: Path) -> CacheEntry:
    (entry,) = opened(root).scan()
    return entry


def _append(name: str) -> Damage:
    return lambda _, folder: (folder / name).write_bytes((folder / name).read_bytes() + b"abc")


def _write(name: str, content: bytes) -> Damage:
    return lambda _, folder: (folder / name).write_bytes(content)


def _in_root(name: str, content: bytes) -> Damage:
    return lambda root, _: (root / name).write_bytes(content)


def _cut(name: str, size: int) -> Damage:
    return lambda _, folder: os.truncate(folder / name, size)


def _gone(*names: str) -> Damage:
    def damage(_: Path, folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


def _locked(name: str) -> Damage:
    return lambda _, folder: lock(folder / name)


def _both(*damages: Damage) -> Damage:
    return lambda root, folder: [one(root, folder) for one in damages]


def _copied(onto: int) -> Damage:
    return lambda _, folder: copy(folder, 0, onto)


def _moved(onto: int) -> Damage:
    return _both(_copied(onto), _gone("0.bin", "0.src", "0_access_time.txt"))


def _a_folder(_: Path, folder: Path) -> None:
    (folder / "0.bin").unlink()
    (folder / "0.bin").mkdir()


def _a_link(root: Path, folder: Path) -> None:
    (folder / "0.bin").rename(root.parent / "outside")
    (folder / "0.bin").symlink_to(root.parent / "outside")


def _beside(name: str) -> Damage:
    return lambda root, _: lock(root.with_name(root.name + name))


def _made(**changes: bytes) -> bytes:
    return Made(**changes).source


_ABSURD = (1 << 62).to_bytes(8, "little")
_WHOLE, _REST, _NOTHING = "the folder", "what is wrong alone", "nothing"
_CASES: dict[str, tuple[Damage, str, str]] = {
    "bytes behind the images": (_append("0.src"), "corrupt", _WHOLE),
    "bytes behind the binary": (_append("0.bin"), "corrupt", _WHOLE),
    "other options": (_write("0.src", _made(options=b"x")), "misplaced", _WHOLE),
    "two claimed": (
        _write("0.bin", (2).to_bytes(8, "little") + Made().binary[8:]), "corrupt", _WHOLE,
    ),
    "a broken payload": (
        _write("0.bin", (1).to_bytes(8, "little") + framed(spirv("first_kernel")[:-2])),
        "mislabelled", _WHOLE,
    ),
    "another kernel": (
        _write("0.bin", Made(compiled=spirv("second")).binary), "mislabelled",
        _WHOLE,
    ),
    "a cut binary": (_cut("0.bin", 20), "truncated", _WHOLE),
    "a cut head": (_cut("0.bin", 7), "truncated", _WHOLE),
    "an empty binary": (
        _write("0.bin", (1).to_bytes(8, "little") + bytes(8)), "corrupt", _WHOLE,
    ),
    "an absurd binary": (_write("0.bin", bytes(8) + _ABSURD), "truncated", _WHOLE),
    "an absurd key": (_write("0.src", _ABSURD), "truncated", _WHOLE),
    "an empty key": (_cut("0.src", 0), "truncated", _WHOLE),
    "a cut key": (_cut("0.src", 60), "truncated", _WHOLE),
    "no key": (_gone("0.src"), "orphan", _WHOLE),
    "no binary": (_gone("0.bin"), "orphan", _WHOLE),
    "a folder": (_a_folder, "untrusted", _NOTHING),
    "a link": (_a_link, "untrusted", _WHOLE),
    "a mode": (lambda _, folder: (folder / "0.bin").chmod(0o666), "untrusted", _NOTHING),
    "a hole": (_moved(2), "misplaced", _WHOLE),
    "a damaged copy": (
        _both(_copied(1), _cut("1.bin", 20)), "truncated", _WHOLE,
    ),
    "a copy behind what is damaged": (
        _both(_copied(1), _cut("0.bin", 20)), "truncated", _WHOLE,
    ),
    "a copy behind what is passed over": (
        _both(_copied(1), _write("0.bin", bytes(8) + _ABSURD)), "truncated", _WHOLE,
    ),
    "a copy behind what kills": (
        _both(_copied(1), _write("0.src", _ABSURD)), "truncated", _WHOLE,
    ),
    "an old lock": (_locked("0.lock"), "misplaced", _WHOLE),
    "a lock of nothing": (_locked("1.lock"), "misplaced", _WHOLE),
    "a lock below": (
        _both(_moved(1), _locked("0.lock")), "misplaced misplaced", _WHOLE,
    ),
    "a lock of times": (_locked("0_access_time.txt.lock"), "misplaced", _WHOLE),
    "no time": (_write("0_access_time.txt", b"yesterday"), "orphan", _WHOLE),
    "a time of nothing": (_write("5_access_time.txt", b"1"), "orphan", _WHOLE),
    "another name": (_write("notes", b"mine"), "leftover", _NOTHING),
    "no size": (_in_root("cache_size.txt", b"many"), "corrupt", _NOTHING),
    "a size of zeros": (_in_root("cache_size.txt", bytes(8)), "corrupt", _REST),
    "a huge size": (_in_root("cache_size.txt", b"%d" % (1 << 64)), "corrupt", _REST),
    "a size of many digits": (_in_root("cache_size.txt", b"0" * 21), "corrupt", _REST),
    "a size below 0": (_in_root("cache_size.txt", b"-5"), "corrupt", _REST),
    "a size far off": (_in_root("cache_size.txt", b"1000000"), "orphan", _REST),
    "a lock of the size": (lambda root, _: lock(root / "cache_size.txt.lock"), "misplaced", _REST),
    "a lock of eviction": (_beside("_eviction_in_progress.lock"), "misplaced", _REST),
    "eviction": (_beside("_eviction_in_progress"), "misplaced", _REST),
    "eviction inside": (_in_root("_eviction_in_progress", b""), "misplaced", _REST),
    "a folder of entries without any": (
        lambda root, _: root.joinpath(_LONG, "2", _LONG, _LONG).mkdir(parents=True),
        "leftover", _REST,
    ),
    "a folder of somebody": (lambda root, _: (root / "mine").mkdir(), "leftover", _NOTHING),
    "a link in the root": (
        lambda root, _: (root / "12").symlink_to(root.parent), "untrusted", _NOTHING,
    ),
    "a shared folder": (lambda _, folder: folder.chmod(0o777), "untrusted", _NOTHING),
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "libsycl_cache"


@pytest.mark.parametrize("name", _CASES)
def test_damage_is_told_and_fixed(name: str, root: Path) -> None:
    """By its kinds; a repair takes the directory, what is wrong alone, or nothing."""
    damage, kinds, goes = _CASES[name]
    folder = put(root)
    whole = snapshot(root)
    damage(root, folder)
    found = [finding for checked, _ in verified(opened(root)) for finding in checked.findings]
    assert [str(finding.kind) for finding in found] == kinds.split()
    damaged = snapshot(root.parent)
    marked = [finding.repaired for checked in repaired(root) for finding in checked.findings]
    assert marked == [goes != _NOTHING] * len(found)
    if goes == _NOTHING:
        assert snapshot(root.parent) == damaged
    else:
        assert not told(root)
        assert any(root.rglob("*.bin")) is (goes == _REST)
    if goes == _REST:
        left = snapshot(root)
        assert {
            name: left[name] for name in whole if name in left and name != "0_access_time.txt"
        }.items() <= (whole.items())
        assert (folder / "0.bin").read_bytes() == Made().binary


@pytest.mark.parametrize(
    "name",
    ["an old lock", "a lock of nothing", "a lock of times", "a lock of the size", "a lock of eviction"],
)
def test_a_young_lock_is_told_and_left(name: str, root: Path) -> None:
    """A program may hold it: what is being written is not judged, and no removal touches the directory."""
    folder = put(root)
    _CASES[name][0](root, folder)
    for path in root.parent.rglob("*.lock"):
        lock(path, age_s=60)
    if name == "an old lock":
        os.truncate(folder / "0.bin", 20)
    before = snapshot(root.parent)
    (said,) = told(root)
    assert said.startswith("locked: ") and "a program may have it" in said
    assert not any(finding.repaired for checked in repaired(root) for finding in checked.findings)
    if name == "an old lock":
        kept = opened(root).remove(_only(root), "--all")
        assert kept is not None and "a program may be writing, as 0.lock exists" in kept.reason
    assert snapshot(root.parent) == before


def test_a_damaged_folder_with_a_young_lock_is_left(root: Path) -> None:
    """A program may be writing the copy that serves the next."""
    folder = put(root)
    os.truncate(folder / "0.bin", 20)
    lock(folder / "1.lock", age_s=5)
    before = snapshot(root)
    assert not any(one.repaired for checked in repaired(root) for one in checked.findings)
    assert snapshot(root) == before


def test_a_scan_tells_of_an_entry_what_a_check_does(root: Path) -> None:
    """A lock, a cut file and a hole are seen at a glance; programs that a copy serves are not told of."""
    folder = put(root)
    lock(folder / "0.lock")
    assert str(_only(root).damage) in told(root)
    (folder / "0.lock").unlink()
    os.truncate(folder / "0.bin", 20)
    assert str(_only(root).damage) in told(root)
    copy(folder, 0, 2)
    (folder / "0.bin").unlink()
    (folder / "0.src").unlink()
    assert str(_only(root).damage).startswith("truncated: ")


def test_what_a_copy_serves_is_not_damaged_at_a_glance(root: Path) -> None:
    """Programs pass over a number under a lock."""
    folder = put(root)
    copy(folder, 0, 1)
    lock(folder / "0.lock")
    assert _only(root).damage is None


def test_every_flipped_byte_of_a_key_is_seen(root: Path) -> None:
    """The directories' names are a checksum of it."""
    folder = put(root, Made(spec=b"ab"))
    data = (folder / "0.src").read_bytes()
    for place in range(len(data)):
        (folder / "0.src").write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        assert told(root), f"byte {place}"


@pytest.mark.parametrize(
    ("made", "findings", "notes"),
    [
        (Made(device=_INTEL, compiled=bytes(64)), ["mislabelled"], 0),
        (Made(compiled=b"CCOB" + bytes(60)), [], 1),
        (Made(compiled=bytes(64)), [], 1),
        (Made(), [], 0),
    ],
)
def test_a_binary_is_judged_by_its_platform(made: Made, findings: list[str], notes: int, root: Path) -> None:
    """Intel's CPU runtime makes ELF files; what an unknown platform makes, and a bundle, is noted."""
    put(root, made)
    checked = opened(root).check(_only(root))
    assert ([str(one.kind) for one in checked.findings], len(checked.notes)) == (findings, notes)


def test_folders_of_another_hash_are_not_compared(root: Path) -> None:
    """Other standard libraries name them otherwise: that is a note."""
    put(root)
    for folder in sorted(root.rglob("*"), reverse=True):
        if folder.is_dir():
            folder.rename(folder.with_name(str(int(folder.name) ^ 1)))
    checked = opened(root).check(_only(root))
    assert checked.findings == () and "not named by" in checked.notes[0]


def test_several_binaries_of_an_older_version_are_sound(root: Path) -> None:
    """Each after its length, as many as are claimed."""
    path = put(root) / "0.bin"
    path.write_bytes((2).to_bytes(8, "little") + 2 * framed(Made().payload))
    assert told(root) == []
    path.write_bytes((3).to_bytes(8, "little") + 2 * framed(Made().payload))
    assert [one.partition(":")[0] for one in told(root)] == ["corrupt"]


def test_an_entry_without_a_time_is_sound(root: Path) -> None:
    """Versions that did not evict wrote none."""
    (put(root) / "0_access_time.txt").unlink()
    assert told(root) == []


def test_a_size_a_little_off_is_sound(root: Path) -> None:
    """libsycl itself counts it in two ways."""
    put(root)
    (root / "cache_size.txt").write_text("2000")
    assert told(root) == []


def test_the_size_follows_what_is_removed(root: Path) -> None:
    """By as much as it took."""
    folder = put(root)
    copy(folder, 0, 1)
    entry = len(Made().binary) + len(Made().source)
    (root / "cache_size.txt").write_text(str(2 * entry + 7))
    assert opened(root).remove(_only(root), "--all") is None
    assert (root / "cache_size.txt").read_text() == "7" and not folder.parent.exists()


def test_what_is_numbered_as_libsycls_files_stays(root: Path) -> None:
    """It is told, with the advice to move it, and neither repair nor removal takes, moves or rewrites it."""
    folder = put(root)
    mine = [folder / "notes"]
    mine += [root / name for name in ("cache_size.txt", "cache_size.txt.lock", "_eviction_in_progress")]
    mine += [root.with_name(root.name + "_eviction_in_progress.lock")]
    for path in mine:
        path.write_text("mine and dear to me")
        os.utime(path, (1, 1))
    said = " ".join(told(root))
    assert all(path.name in said for path in mine)
    repaired(root)
    for entry in opened(root).scan():
        opened(root).remove(entry, "--all")
    assert {path.read_text() for path in mine} == {"mine and dear to me"}


def test_an_entry_is_read_from_the_heads_of_its_files(root: Path) -> None:
    """Program, target, options and toolchain are what the .src says."""
    put(root, Made(image=spirv("_ZTS1K", "_ZTS1L"), options=b"-O1", spec=b"\x01\x02"))
    entry = _only(root)
    fields = dict(entry.fields)
    assert (entry.program, entry.target, entry.artifact_kind) == (
        "K and 1 more", "Some OpenCL/Some GPU", "spir-v",
    )  # fmt: skip
    assert entry.variant.startswith("-O1 spec ") and (entry.unique, entry.damage) == (False, None)
    assert dict(entry.toolchain)["driver version"] == "1.2.3" and fields["spec"] == "0102"
    report = opened(root).report(entry)
    values = [(field.label, field.value) for field in report.key_fields]
    assert [value for label, value in values if label == "kernel"] == ["_ZTS1K", "_ZTS1L"]
    assert dict(report.payload)["kind"] == "spir-v"


@pytest.mark.parametrize(
    ("device", "target", "name"),
    [
        (b"P/GPU A/B/OpenCL 3/9", "P/GPU A/B", "GPU A/B"),
        (b"nothing known", "nothing known", None),
        (DEVICE + b"x" * 200_000, "Some OpenCL/Some GPU", "Some GPU"),
    ],
)
def test_a_device_is_told_by_its_parts(device: bytes, target: str, name: str | None, root: Path) -> None:
    """Only its name may hold slashes; another form is shown whole; no part is longer than what is shown."""
    folder = put(root)
    (folder / "0.src").write_bytes(Made(device=device).source)
    entry = _only(root)
    assert (entry.target, dict(entry.toolchain).get("device name")) == (target, name)


@pytest.mark.parametrize(
    ("image", "program"),
    [
        (spirv("A", "B", "C"), "A and 2 more"),
        (spirv("_ZTSN4dpnp3addE"), "dpnp::add"),
        (b"\x7fELF" + bytes(200), "elf image"),
        (b"", ""),
        (spirv("a\x1b[2Jb"), "a\N{REPLACEMENT CHARACTER}[2Jb"),
    ],
)
def test_a_program_is_called_by_its_first_kernel(image: bytes, program: str, root: Path) -> None:
    """Readable and safe on a terminal; by what its images are where those tell no name."""
    put(root, Made(image=image))
    assert _only(root).program == program


def test_the_last_use_is_the_latest_that_is_known(root: Path) -> None:
    """The program's own note, or a read that the disk noted, which a copy of the file is not."""
    folder = put(root)
    (folder / "0_access_time.txt").write_text(str(10**19 - 1))
    assert _only(root).last_used_ns == 10**19 - 1
    (folder / "0_access_time.txt").write_text("1")
    later = (folder / "0.bin").stat().st_ctime_ns + 5_000_000_000
    os.utime(folder / "0.bin", ns=(later, NOW_NS))
    assert _only(root).last_used_ns == later


@pytest.mark.parametrize("shows", [True, False])
def test_an_entry_of_another_driver_is_an_older_version(
    shows: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is what the rule is for; not on a file system without access times, where it may be in use."""
    monkeypatch.setattr("gpucache.caches.places.shows_uses", lambda _: shows)
    for device in (DEVICE.replace(b"1.2.3", b"1.2.2"), DEVICE):
        put(root, Made(device=device))
    now_ns = 2 * UNUSED_NS
    older, newer = (
        one._replace(created_ns=made_ns, last_used_ns=used_ns)
        for one, (made_ns, used_ns) in zip(opened(root).scan(), ((1, 2), (UNUSED_NS, now_ns)), strict=True)
    )
    judge = Origins().superseded((older, newer), now_ns)
    assert (judge(older), judge(newer)) == (shows, False)


@pytest.mark.parametrize("ir", [False, True])
def test_kernel_compiler_entries_are_opaque(ir: bool, root: Path) -> None:
    """They have no .src; their binary is checked all the same, and IR keeps its name."""
    folder = root / "ext_kernel_compiler" / ("A" * 43 + "=") if ir else kernel_folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    stem = "ir" if ir else "0"
    (folder / f"{stem}.bin").write_bytes(Made().binary)
    entry, cache = _only(root), opened(root)
    assert entry.program.startswith("kernel_compiler ") and (entry.unique, entry.damage) == (True, None)
    assert any("not stored" in field.value for field in cache.report(entry).key_fields)
    checked = cache.check(entry)
    assert checked.findings == () and "stores no key" in checked.notes[0]
    (folder / f"{stem}.bin").write_bytes(Made().binary[:-1])
    assert [str(one.kind) for one in cache.check(_only(root)).findings] == ["truncated"]


def test_extract_refuses_what_programs_take_and_is_not_sound(root: Path) -> None:
    """A sound copy behind it does not matter, as nobody gets it."""
    folder = put(root, replace(Made(), compiled=spirv("first_kernel")[:-2]))
    copy(folder, 0, 1)
    (folder / "1.bin").write_bytes(Made().binary)
    with pytest.raises(FormatError, match="is mislabelled: "):
        opened(root).extract(_only(root))


def test_a_huge_binary_is_told_apart_by_its_size(root: Path) -> None:
    """It is never held in memory: the check, the report and the extraction say so."""
    path = put(root) / "0.bin"
    path.write_bytes((1).to_bytes(8, "little") + _HUGE.to_bytes(8, "little"))
    os.truncate(path, 16 + _HUGE)
    cache, entry = opened(root), _only(root)
    checked = cache.check(entry)
    assert checked.findings == () and "was not looked into: larger than 256 MiB" in checked.notes[0]
    assert dict(cache.report(entry).payload) == {"binary": "not looked into: larger than 256 MiB"}
    with pytest.raises(FormatError, match="larger than 256 MiB"):
        cache.extract(entry)


def test_a_huge_image_is_told_apart_by_its_size(root: Path) -> None:
    """Neither hashed nor shown."""
    path = put(root) / "0.src"
    head = framed(DEVICE) + framed(b"-cl-fast") + framed(b"") + _HUGE.to_bytes(8, "little")
    path.write_bytes(head[:-8] + (299_000_000).to_bytes(8, "little"))
    os.truncate(path, len(head) + 299_000_000)
    cache, entry = opened(root), _only(root)
    assert "was not hashed" in " ".join(cache.check(entry).notes)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x31\x00\x33\x34\x00", 11120727974528640760),
        (b"x" * 1000, 8681964282549520334),
        (b"\xff\xfe\x80", 14556126092281874519),
        (b"-cl-fast-relaxed-math", 6586820193979656031),
        (
            b"Intel(R) OpenCL/Intel(R) Xeon(R) Processor/OpenCL 3.1 (Build 0)/2026.22.10.0.01_160000",
            807247836371013825,
        ),
    ],
)
def test_the_hash_is_that_of_libstdcxx(data: bytes, value: int) -> None:
    """With and without a tail, bytes above 127 and NULs, and a device string seen on a disk."""
    assert murmur64a(data) == value


@pytest.mark.parametrize(("mode", "effect"), [(0, "gets nothing"), (1, "pass it over")])
def test_a_file_that_may_not_be_read_is_untrusted(
    mode: int, effect: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For people to change, so a repair leaves it."""
    from gpucache.caches.files import Files

    put(root)
    plain, closed = Files.part, ("0.bin", "0.src")[mode]

    def part(self: Files, name: str, offset: int, count: int) -> bytes:
        if name == closed:
            raise PermissionError(13, "Permission denied")
        return plain(self, name, offset, count)

    monkeypatch.setattr(Files, "part", part)
    (said,) = told(root)
    assert said.startswith("untrusted: ") and effect in said
    assert not any(one.repaired for checked in repaired(root) for one in checked.findings)


def test_a_repair_twice_changes_nothing_more(root: Path) -> None:
    """Repair of a repaired cache is a walk."""
    put(root, number=2)
    put(root, Made(image=spirv("other")))
    repaired(root)
    before = snapshot(root)
    assert repaired(root) == [] and snapshot(root) == before and len(before) == 3


def test_new_files_are_private(root: Path) -> None:
    """A lock is taken as libsycl takes it, and is gone with the removal."""
    put(root)
    modes: list[int] = []
    plain = os.open

    def watching(path: object, flags: int, mode: int = 0o777, **more: object) -> int:
        if str(path).startswith(".gpucache-lock"):  # which then gets the name of the lock
            modes.append(mode)
        return plain(path, flags, mode, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", watching)
        assert opened(root).remove(_only(root), "--all") is None
    assert modes == [stat.S_ISVTX | 0o200] and stat.S_ISDIR(root.stat().st_mode) and not list(root.iterdir())


@pytest.mark.parametrize("damaged", [False, True])
def test_names_that_only_end_like_libsycls_stay(damaged: bool, root: Path) -> None:
    """Empty locks and times under names of one's own, next to an entry and where none is left."""
    folder = put(root)
    mine = [folder / name for name in ("notes.lock", "Copy of 0.lock", "Copy of 5_access_time.txt")]
    for path in mine:
        lock(path)
    mine[-1].write_text("1")
    for name in ("0.bin", "0.src", "0_access_time.txt"):
        os.truncate(folder / name, 20) if damaged else (folder / name).unlink()
    repaired(root)
    for entry in opened(root).scan():
        opened(root).remove(entry, "--all")
    assert all(path.exists() for path in mine) and not (folder / "0.bin").exists()
