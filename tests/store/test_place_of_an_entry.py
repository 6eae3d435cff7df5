"""Whatever is in place of an entry: the program gets its own, verify names it, and a repair removes it."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.lookup import Built, Hit
from gpucache.answers.verify import Checked
from gpucache.engine.lookup import get_or_build
from gpucache.engine.stores import Stores
from gpucache.engine.verify import repaired, run_verify
from gpucache.store.directory import BYTES_CAP, DirectoryStore
from gpucache.store.format import HEADER
from gpucache.store.interface import Absent, Damaged
from tests.engine.conftest import Compiler, make_ready
from tests.faults.conftest import own

pytestmark = pytest.mark.skipif(os.name != "posix", reason="speaks of POSIX files")
_READY, _OTHER = make_ready(), make_ready(options=("-DOTHER",))
_COMPILER = Compiler("wanted")


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    made = DirectoryStore(tmp_path / "root", writable=True)
    for ready, remark in ((_READY, "wanted"), (_OTHER, "another")):
        get_or_build(Stores(user=made), ready, Compiler(remark))
    return made


def _path(store: DirectoryStore, key: str = _READY.key.hex) -> Path:
    return store.root / "v1" / "entries" / key[:2] / f"{key}.gpc"


def _header(path: Path, offset: int, value: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(value.to_bytes(size, "little"))


def _instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.unlink()
        make(path)

    return put


def _listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        place = os.open(path.parent, os.O_RDONLY)
        bound.bind(f"/proc/self/fd/{place}/{path.name}")
        os.close(place)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only the administrator makes devices")


def _full_folder(path: Path) -> None:
    path.mkdir()
    (path / "a file").write_bytes(b"of somebody")


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only the administrator can give files away")
    os.chown(path, 12345, 12345)


def _other(path: Path) -> Path:
    return path.parents[1] / _OTHER.key.hex[:2] / f"{_OTHER.key.hex}.gpc"


_WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing in it": (lambda path: os.truncate(path, 0), "truncated"),
    "a byte more": (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "corrupt"),
    "a page more": (lambda path: path.write_bytes(path.read_bytes() + bytes(4096)), "corrupt"),
    "gigabytes more": (lambda path: os.truncate(path, 5 << 30), "corrupt"),
    "the entry of another key": (lambda path: shutil.copy(_other(path), path), "misplaced"),
    "a text": (lambda path: path.write_bytes(b"not an entry\n" * 100), "corrupt"),
    "the head's length lies": (lambda path: _header(path, 12, 2**32 - 1, 4), "corrupt"),
    "the detail's length lies": (lambda path: _header(path, 16, 2**63, 8), "corrupt"),
    "the payload's length lies": (lambda path: _header(path, 24, 2**64 - 1, 8), "corrupt"),
    "the total lies": (lambda path: _header(path, 32, 2**63, 8), "truncated"),
    "the total is too small": (lambda path: _header(path, 32, HEADER.size, 8), "corrupt"),
    "a byte of the payload": (lambda path: _flip(path, -1), "corrupt"),
    "a byte of the head": (lambda path: _flip(path, HEADER.size), "corrupt"),
    "a folder": (_instead(Path.mkdir), "untrusted"),
    "a folder with files": (_instead(_full_folder), "untrusted"),
    "a link to nothing": (_instead(lambda path: path.symlink_to("nowhere")), "untrusted"),
    "a link to an entry": (_instead(lambda path: path.symlink_to(_other(path))), "untrusted"),
    "a link to itself": (_instead(lambda path: path.symlink_to(path)), "untrusted"),
    "a FIFO": (_instead(os.mkfifo), "untrusted"),
    "a socket": (_instead(_listen), "untrusted"),
    "a device": (_instead(_device), "untrusted"),
    "writable by all": (lambda path: path.chmod(0o666), "untrusted"),
    "writable by its group": (lambda path: path.chmod(0o660), "untrusted"),
    "of another user": (lambda path: _give_away(path), "untrusted"),
}


def _is_of_the_payload(put: object) -> bool:
    """Whether a scan, which reads only heads, cannot notice it."""
    return put is _WRONG["a byte of the payload"][0]


wrong = pytest.mark.parametrize(("put", "kind"), _WRONG.values(), ids=_WRONG)


def _got(store: DirectoryStore) -> str:
    """How a program gets its artifact: by a compile or by a hit; its bytes are always right."""
    outcome = get_or_build(Stores(user=store), _READY, _COMPILER)
    payload = outcome.payload if isinstance(outcome, Hit) else outcome.artifact.payload
    assert payload == _COMPILER.payload
    assert not isinstance(outcome, Built) or outcome.key is not None, outcome
    return type(outcome).__name__


def _status(path: Path) -> tuple[int, ...]:
    status = path.lstat()
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _verified(store: DirectoryStore, *, repair: bool = False) -> list[Checked]:
    cache = own(store)
    found = list(run_verify(cache, list(cache.scan())))
    return repaired(cache, found) if repair else [checked for checked, _ in found]


def _findings(checked: list[Checked]) -> list[tuple[str, str, bool]]:
    return [(one.entry, one.kind.value, one.repaired) for each in checked for one in each.findings]


@wrong
def test_the_program_builds_its_own_and_the_next_one_hits(
    store: DirectoryStore, put: Callable[[Path], object], kind: str
) -> None:
    """A wrong file is a miss, is moved away after one compile, and nothing else is touched."""
    put(_path(store))
    other, before = _other(_path(store)).read_bytes(), _status(_path(store))
    told = DirectoryStore(store.root, writable=False).get(_READY.key)
    assert isinstance(told, Damaged) and (told.damage.value, told.quarantined) == (kind, False)
    assert _status(_path(store)) == before
    assert kind != "untrusted" or store.detail(_READY.key) is None
    (scanned,) = (one for one in store.scan() if one.key == _READY.key)
    assert (scanned.damage and scanned.damage.kind) == (None if _is_of_the_payload(put) else kind)
    assert isinstance(checked := store.check(scanned), Damaged) and checked.damage.value == kind
    assert [_got(store), _got(store)] == ["Built", "Hit"]
    assert _findings(_verified(store)) == []
    assert _other(_path(store)).read_bytes() == other


@wrong
def test_verify_names_it_and_repair_takes_it_away(
    store: DirectoryStore, put: Callable[[Path], object], kind: str
) -> None:
    """Verify alone changes nothing; repaired files are in the quarantine, within its bounds."""
    put(_path(store))
    before = _status(_path(store))
    assert _findings(_verified(store)) == [(_READY.key.hex, kind, False)]
    assert _status(_path(store)) == before
    assert _findings(_verified(store, repair=True)) == [(_READY.key.hex, kind, True)]
    assert not os.path.lexists(_path(store))
    assert _findings(_verified(store)) == []
    assert sum(path.lstat().st_size for path in store.root.glob("v1/quarantine/*")) <= BYTES_CAP
    assert [_got(store), _got(store)] == ["Built", "Hit"]


@pytest.mark.parametrize("cut", [0, 7])
def test_an_entry_of_a_later_version_is_left_alone_until_its_key_is_built_anew(
    store: DirectoryStore, cut: int
) -> None:
    """It is not damage, whatever its lengths, so nothing removes it."""
    _header(_path(store), 8, 2, 4)
    os.truncate(_path(store), _path(store).stat().st_size - cut)
    told = store.get(_READY.key)
    assert isinstance(told, Absent) and "format version 2" in (told.reason or "")
    before = _path(store).read_bytes()
    assert _findings(_verified(store, repair=True)) == [(_READY.key.hex, "unsupported", False)]
    assert _path(store).read_bytes() == before
    assert not list(store.root.glob("v1/quarantine/*"))
    assert [_got(store), _got(store)] == ["Built", "Hit"]


def test_two_entries_that_were_exchanged_are_both_misplaced(store: DirectoryStore) -> None:
    """Each is a sound entry, but of the wrong program."""
    path, other = _path(store), _other(_path(store))
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)
    assert {kind for _, kind, _ in _findings(_verified(store))} == {"misplaced"}
    assert [_got(store), _got(store)] == ["Built", "Hit"]
    assert _findings(_verified(store, repair=True)) == [(_OTHER.key.hex, "misplaced", True)]
