"""The index of a store that lists nothing, whichever writers are killed or overtaken on their way to it."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from gpucache.caches.portable import PortableEntry, PortableFile
from gpucache.remote.catalogue import INDEX, finish_catalogue, read_catalogue, read_index, write_catalogue
from gpucache.remote.folder import FolderObjects
from gpucache.remote.objects import NO_FILES, Files, Listed
from gpucache.remote.records import Signed, record_of, signed
from gpucache.remote.signing import SigningKey, TrustedKeys, new_key
from tests.faults.tracing import WRITING, killed_before_call

_KEY = new_key("ci")


class _Killed(BaseException):
    """The end of a process at some step."""


class _Stepped(FolderObjects):
    """A directory, whose every step is reported before it is made; a replacement has a second one."""

    def __init__(self, root: Path, step: Callable[[], object]) -> None:
        super().__init__(root)
        self._step = step

    def listed(self, prefix: str, expected: int = 0) -> Iterator[Listed]:
        self._step()
        return super().listed(prefix, expected)

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        self._step()
        return super().read(names, limit_bytes)

    def create(
        self, objects: Iterable[tuple[str, bytes]], files: Files = NO_FILES
    ) -> Iterator[tuple[str, bool]]:
        self._step()
        return super().create(objects, files)

    def replace(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        self._step()

        def changed(old: bytes | None) -> bytes:
            data = change(old)
            self._step()
            return data

        super().replace(name, changed)

    def remove(self, names: Iterable[str]) -> None:
        self._step()
        super().remove(names)


class _Web(FolderObjects):
    """A directory as a web server shows it."""

    lists = False


def _send(store: FolderObjects, program: str, key: SigningKey = _KEY) -> None:
    """A push of one entry, without the entry."""
    entry = PortableEntry("cupy", program, (PortableFile(program, b"", 0o600),), program=program)
    write_catalogue(store, [signed(record_of(entry), key)], key)
    finish_catalogue(store, key)


def _seen(root: Path) -> set[str]:
    found = read_catalogue(_Web(root), TrustedKeys({}))
    return {one.record.program for one in found.records.values()}


def _overtaken(root: Path, at: int, killed: int | None) -> bool:
    """Send while another sends everything before one step, and be killed before a later one; whether there
    are so many steps."""
    steps = count()
    last = 0

    def step() -> None:
        nonlocal last
        last = next(steps)
        if last == at:
            _send(FolderObjects(root), "theirs")
            (root / "theirs").touch()
        if last == killed:
            raise _Killed

    try:
        _send(_Stepped(root, step), "ours")
    except _Killed:
        return True
    return last >= at and killed is None


def test_records_with_a_copied_signature_hide_no_true_one(tmp_path: Path) -> None:
    """Whoever may write there can give any facts the signature of an entry; each is a record of its own."""
    store = FolderObjects(tmp_path)
    entry = PortableEntry("triton", "ab" * 32, (PortableFile("K/k.cubin", b"binary", 0o644),), program="k")
    true = signed(record_of(entry), _KEY)
    copied = (Signed(record_of(entry._replace(program=name)), true.signer, true.signature) for name in "az")
    write_catalogue(store, [*copied, true])
    trusted = TrustedKeys({_KEY.public.id: _KEY.public})
    found = read_catalogue(store, trusted).records.values()
    assert [one.record.program for one in found if one.is_believed(trusted)] == ["k"] and len(found) == 3


def test_a_writer_killed_at_any_step_hides_nothing_of_another(tmp_path: Path) -> None:
    """Whichever step the other came before."""
    places = (tmp_path / str(number) for number in count())
    trials = 0
    for at in count():
        for killed in count(at):
            _send(FolderObjects(root := next(places)), "before")
            if not _overtaken(root, at, killed):
                break
            trials += 1
            assert {"before", "theirs"} <= _seen(root), (at, killed)
        _send(FolderObjects(root := next(places)), "before")
        if not _overtaken(root, at, None):
            break
        assert _seen(root) == {"before", "theirs", "ours"}, at
    assert trials > 50


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts system calls as Linux does")
def test_a_writer_killed_before_any_call_that_writes_hides_nothing_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By kill -9; the other came before any step of the second half, which is about the index."""
    monkeypatch.setattr("gpucache.remote.folder.in_parallel", lambda call, items, **_: map(call, items))
    trials = 0
    for at in range(4, 12):
        for number in count(1):
            _send(FolderObjects(root := tmp_path / f"{at}-{number}"), "before")
            died = killed_before_call(partial(_overtaken, root, at, None), number, WRITING)
            sent = {"before", "theirs"} if (root / "theirs").exists() else {"before"}
            assert sent <= _seen(root), (at, number)
            if not died:
                break
            trials += len(sent) - 1
    assert trials > 50


def test_a_writer_that_is_overtaken_again_and_again_is_in_the_index(tmp_path: Path) -> None:
    """The second of those that were faster saw everything of it, also if it is the first to send anything."""
    others = count()

    def step() -> None:
        number = next(others)
        _send(FolderObjects(tmp_path), f"theirs {number}")

    _send(_Stepped(tmp_path, step), "ours")
    assert _seen(tmp_path) == {"ours", *(f"theirs {number}" for number in range(next(others)))}


@pytest.mark.parametrize("garbage", [b"", b"<html>", b'{"catalogues": [], "signers": [], "number": 1}'])
def test_an_index_that_is_none_is_passed_by_and_written_anew(tmp_path: Path, garbage: bytes) -> None:
    """A page of a server for a missing index ends the search for later ones."""
    _send(FolderObjects(tmp_path), "one")
    (tmp_path / "indexes" / f"{2:016x}").write_bytes(garbage)
    assert _seen(tmp_path) == {"one"}
    (tmp_path / INDEX).write_bytes(garbage)
    _send(FolderObjects(tmp_path), "two")
    assert _seen(tmp_path) == {"one", "two"}


def test_old_indexes_go_and_the_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a writer, delayed by less than an hour, may put in the place of the newest stay."""
    monkeypatch.setattr("gpucache.remote.catalogue._LAST", 2)
    store = FolderObjects(tmp_path)
    for number in range(4):
        _send(store, str(number))
    for name in (1, 2):
        os.utime(tmp_path / "indexes" / f"{name:016x}", ns=(0, 0))
    _send(store, "last")
    assert sorted(path.name[-1] for path in (tmp_path / "indexes").iterdir()) == ["3", "4", "5"]
    found = read_index(store)
    assert found is not None and found.number == 5
