"""A root in one file: read whole, written anew, shared by processes, and damaged in every way."""

import os
import tarfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from gpucache.errors import CacheUnusableError, UsageError
from gpucache.host import scratch
from gpucache.model import Entry
from gpucache.store import layout, root_file
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Found
from gpucache.store.root_file import RootFile
from tests.store.conftest import build_entry


class Process:
    """The use of a file by one process."""

    def __init__(self, path: Path) -> None:
        self.told: list[str] = []
        self.file = RootFile(path, self.told.append)
        self.store = DirectoryStore(self.file.root.path, writable=True)

    def has(self, *entries: Entry) -> list[bool]:
        return [isinstance(self.store.get(one.key), Found) for one in entries]

    def end(self, *built: Entry) -> root_file.Written:
        for one in built:
            self.store.publish(one)
        written = self.file.write(0)
        self.file.close()
        return written


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.cache"


@pytest.fixture
def start(path: Path) -> Callable[[], Process]:
    return lambda: Process(path)


def recent(seed: str, payload: bytes | None = None) -> Entry:
    """An entry of a file's program that was built a minute ago."""
    entry = build_entry(seed, payload)
    made_ns = time.time_ns() - 60 * 10**9
    return entry._replace(head=entry.head._replace(created_ns=made_ns, place=f"{seed}.cl"))


def _tar_of_others() -> bytes:
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, kind in (("v1", tarfile.DIRTYPE), ("v1/openapi.yaml", tarfile.REGTYPE)):
            member = tarfile.TarInfo(name)
            member.type = kind
            tar.addfile(member)
    return made.getvalue()


A, B, C = map(recent, "abc")
"""Entries of one program each."""


def newer(entry: Entry, seed: str) -> Entry:
    """An entry of the same program with another key, built a second later."""
    other = build_entry(seed)
    head = entry.head._replace(created_ns=entry.head.created_ns + 10**9)
    return other._replace(head=head._replace(payload_sha256=other.head.payload_sha256))


def test_a_file_has_what_the_last_process_published(start: Callable[[], Process], path: Path) -> None:
    """The first process makes the file, the second finds both entries and leaves the file alone."""
    first = start().end(A, B)
    before = path.stat()
    second = start()
    found = second.has(A, B)
    again = second.end()
    assert (first.entries, first.changed, found, again.entries, again.changed) == (
        2,
        True,
        [True] * 2,
        2,
        False,
    )
    assert path.stat().st_ino == before.st_ino
    assert before.st_mode & 0o777 == 0o600


def test_a_file_is_a_tar_file_of_a_root(start: Callable[[], Process], path: Path, tmp_path: Path) -> None:
    """tar unpacks it into a root, and a root that tar packs is read, with its directories passed over."""
    start().end(A)
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path / "root", filter="data")
    unpacked = DirectoryStore(tmp_path / "root", writable=False)
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(tmp_path / "root" / "v1", "v1")
    assert (isinstance(unpacked.get(A.key), Found), start().has(A)) == (True, [True])


def test_the_directory_is_private_and_removed(start: Callable[[], Process]) -> None:
    """Only this user may enter it, and nothing of it is left at the end."""
    process = start()
    place = process.file.root.path.parent
    mode = place.stat().st_mode & 0o777
    process.end(A)
    assert (mode, place.exists()) == (0o700, False)


def test_two_processes_add_to_one_file(start: Callable[[], Process]) -> None:
    """Each writes its own news, and keeps those that came to the file meanwhile."""
    one, two = start(), start()
    one.end(A)
    two.end(B)
    assert start().has(A, B) == [True, True]


def test_a_killed_process_loses_its_own_news_alone(start: Callable[[], Process], path: Path) -> None:
    """The file stays as it was, and the next process removes a half written one next to it."""
    start().end(A)
    start().store.publish(B)
    path.with_name(f".{path.name}.gpucache-{0:016x}").write_bytes(b"half")
    third = start()
    found = third.has(A, B)
    third.end(C)
    assert (found, start().has(A, C), [*path.parent.iterdir()]) == ([True, False], [True, True], [path])


def test_a_process_goes_without_while_another_writes(
    start: Callable[[], Process], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and the file has the news of the one that wrote."""
    late = start()
    others: list[root_file.Written] = []
    write = root_file.write

    def meanwhile(*given: object) -> None:
        if not others:
            others.append(late.end(B))
        write(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(root_file, "write", meanwhile)
    start().end(A)
    [other] = others
    assert ("another process writes it" in other.problem, start().has(A, B)) == (True, [True, False])


def test_superseded_entries_go_when_the_file_is_written(start: Callable[[], Process]) -> None:
    """An entry goes once there is a newer one of its program and the process did not use it."""
    new = newer(A, "z")
    start().end(A, B)
    written = start().end(new)
    assert (written.entries, start().has(A, B, new)) == (2, [False, True, True])


def test_a_superseded_entry_that_is_used_stays(start: Callable[[], Process]) -> None:
    """One start may build several texts under one name."""
    new = newer(A, "z")
    start().end(A)
    process = start()
    process.has(A)
    process.end(new)
    assert start().has(A, new) == [True, True]


def test_a_source_in_memory_may_be_another_program_of_its_name(start: Callable[[], Process]) -> None:
    """Its entries stay next to newer ones, for 30 days after their last use."""
    old, new = (one._replace(head=one.head._replace(place="")) for one in (A, newer(A, "z")))
    start().end(old)
    start().end(new)
    assert start().has(old, new) == [True, True]


def test_a_process_that_ends_early_writes_its_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt or an error after some builds loses none of them."""
    monkeypatch.setattr(scratch, "ENDINGS", set())  # others end the work of later tests
    root = root_file.root_of(path, print, writes=True)
    DirectoryStore(root, writable=True).publish(A)
    scratch.end_others()
    assert (root.exists(), Process(path).has(A)) == (False, [True])


def test_files_of_others_beside_it_stay(start: Callable[[], Process], path: Path) -> None:
    """Only a half written file with a name that gpucache alone gives is removed."""
    other = path.with_name(f".{path.name}.part")
    other.write_bytes(b"mine")
    start().end(A)
    assert other.read_bytes() == b"mine"


def test_an_export_through_a_link_keeps_the_link_and_the_mode(tmp_path: Path, path: Path) -> None:
    """The file that it leads to is replaced, and is as private as it was."""
    process, link = Process(path), tmp_path / "link.cache"
    process.end(A)
    link.symlink_to(path)
    root = DirectoryStore(tmp_path / "root", writable=True)
    root.publish(B)
    root_file.export(root.root, link, ())
    assert (link.is_symlink(), path.stat().st_mode & 0o777) == (True, 0o600)
    assert Process(path).has(A, B) == [False, True]


def test_an_export_leaves_out_the_requests_of_other_programs(tmp_path: Path, path: Path) -> None:
    """A file for others has no noted request, and of named programs no record of headers either."""
    root = DirectoryStore(tmp_path / "root", writable=True)
    root.publish(A)
    for folder, name in ((layout.MISSED, f"{0:064x}.json"), (layout.ROWS, f"{0:064x}.memo")):
        root.root.joinpath(*folder).mkdir(parents=True)
        (root.root.joinpath(*folder) / name).write_bytes(b"secret")
    root_file.export(root.root, path, [A.head.program])
    assert b"secret" not in path.read_bytes()


def test_an_entry_of_another_toolchain_stays_for_a_month(start: Callable[[], Process], path: Path) -> None:
    """Two environments share a file for 30 days after the last use."""
    new = newer(A, "z")
    new = new._replace(head=new.head._replace(toolchain=(("version", "2"),)))
    start().end(A)
    start().end(new)
    young = start().has(A)
    start().end(B)
    aged = bytearray(path.read_bytes())
    for at in range(0, len(aged), 512):  # all headers say that nothing was used since 1970
        if aged[at : at + 3] == b"v1/":
            aged[at + 136 : at + 148] = b"00000000000\0"
            block = aged[at : at + 512]
            aged[at + 148 : at + 156] = b"%06o\0 " % (sum(block) - sum(block[148:156]) + 8 * 32)
    path.write_bytes(aged)
    start().end(C)
    assert (young, start().has(A, new)) == ([True], [False, True])


def test_records_stay_as_long_as_their_entries(start: Callable[[], Process]) -> None:
    """A row names its entry by the bytes of the key, and goes with it; so does a program's history."""
    new = newer(A, "z")
    first = start()
    first.store.rows.put("0" * 16, b"row" + bytes.fromhex(A.key.hex))
    first.store.rows.put("1" * 16, b"row" + bytes.fromhex(B.key.hex))
    first.end(A, B)
    second = start()
    before = second.store.rows.names()
    second.end(new)
    assert (before, start().store.rows.names()) == (["0" * 16, "1" * 16], ["1" * 16])


@pytest.mark.parametrize("kept_bytes", [0, 100, 512, 1000, 2000, -1024, -1])
def test_a_truncated_file_is_a_miss_and_replaced(
    start: Callable[[], Process], path: Path, kept_bytes: int
) -> None:
    """Its sound part is read, damage is reported, and the next write makes it whole."""
    start().end(A, B)
    whole = path.read_bytes()
    path.write_bytes(whole[:kept_bytes])
    process = start()
    told, found = process.told, process.has(A, B)
    process.end(A, B)
    assert len(told) == (kept_bytes not in (0, -1))
    assert found == [kept_bytes < 0, kept_bytes < 0] or (kept_bytes == 2000 and True in found)
    assert start().has(A, B) == [True, True]


def test_every_flipped_byte_is_seen(path: Path, start: Callable[[], Process]) -> None:
    """No flip of a byte in a file gives an entry that is not the one that was published."""
    start().end(A)
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        path.write_bytes(damaged)
        process = start()
        answer = process.store.get(A.key)
        assert not isinstance(answer, Found) or answer.payload == A.payload, at
        process.file.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("v1/entries/aa/x.gpc", tarfile.REGTYPE),
        ("../../v1/evil", tarfile.REGTYPE),
        ("/etc/evil", tarfile.REGTYPE),
        ("v1/entries/../evil.gpc", tarfile.REGTYPE),
        ("v1/locks/" + "0" * 64 + ".lock", tarfile.REGTYPE),
        (f"v1/entries/{A.key.hex[:2]}/{A.key.hex}.gpc", tarfile.SYMTYPE),
        (f"v1/entries/{A.key.hex[:2]}/{A.key.hex}.gpc", tarfile.LNKTYPE),
        (f"v1/entries/{A.key.hex[:2]}", tarfile.SYMTYPE),
        (f"v1/entries/{A.key.hex[:2]}/{A.key.hex}.gpc", tarfile.FIFOTYPE),
    ],
)
def test_only_regular_files_of_a_root_are_unpacked(
    start: Callable[[], Process], path: Path, name: str, kind: bytes
) -> None:
    """Links, devices, and names that no root has are passed over; what follows them is read."""
    start().end(B)
    rest, made = path.read_bytes(), BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        member = tarfile.TarInfo("v1/rows/first")
        tar.addfile(member)
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    path.write_bytes(made.getvalue()[:1024] + rest)
    process = start()
    root = process.file.root.path
    files = {str(one.relative_to(root)) for one in root.rglob("*") if not one.is_dir()}
    assert files == {"CACHEDIR.TAG", "/".join((*layout.entry_folder(B.key), layout.entry_name(B.key)))}


@pytest.mark.parametrize("size", [b"40000000000\0", b"-0000002000\0"])
def test_lengths_are_bounded_by_the_file(path: Path, start: Callable[[], Process], size: bytes) -> None:
    """A member that claims 4 GiB takes no more memory than the file has bytes; a negative size is damage."""
    start().end(A)
    whole = bytearray(path.read_bytes())
    whole[124:136] = size
    whole[148:156] = b"%06o\0 " % (sum(whole[:512]) - sum(whole[148:156]) + 8 * 32)
    path.write_bytes(whole)
    process = start()
    assert (len(process.told), process.has(A)) == (1, [False])


@pytest.mark.parametrize(
    "content",
    [
        b"int main() {}\n",
        b"\x7fELF" + bytes(2000),
        b"x" * 600,
        b"v1/notes\n" * 99,
        bytes(99 << 10),
        _tar_of_others(),
    ],
)
def test_another_file_is_never_replaced(path: Path, content: bytes) -> None:
    """A file that does not begin as ours is refused and stays."""
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a cache in a file, and stays"):
        Process(path)
    with pytest.raises(UsageError, match="is not a cache in a file, and stays"):
        root_file.export(path.parent / "root", path, ())
    assert path.read_bytes() == content


def test_a_link_or_a_file_that_others_may_write_is_refused(start: Callable[[], Process], path: Path) -> None:
    """The file is trusted by the rules of a root."""
    start().end(A)
    path.chmod(0o666)
    with pytest.raises(CacheUnusableError, match="others may write to it"):
        start()
    path.chmod(0o600)
    path.rename(path.with_name("other"))
    path.symlink_to("other")
    with pytest.raises(CacheUnusableError, match="it is a link"):
        start()


def test_a_missing_directory_is_said(path: Path) -> None:
    """The sentence names the directory and the remedy."""
    with pytest.raises(UsageError, match=r"nowhere does not exist, so a\.cache cannot be kept there; create"):
        Process(path.parent / "nowhere" / "a.cache")


def test_a_place_without_room_is_passed_over(
    start: Callable[[], Process], path: Path, mount: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that does not fit into the user's directory in memory is unpacked elsewhere."""
    start().end(recent("a", os.urandom(200_000)), B)
    runtime = mount("size=64k")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    process = start()
    assert (process.has(B), [*runtime.iterdir()]) == ([True], [])


def test_a_readable_file_stays_readable(start: Callable[[], Process], path: Path) -> None:
    """A file that was made readable for all users stays so when it is written."""
    start().end(A)
    path.chmod(0o644)
    start().end(B)
    assert path.stat().st_mode & 0o777 == 0o644
