"""Replies of a store to a program: fully verified entries, and nothing else."""

import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpucache.assembly import open_stores
from gpucache.caches.portable import of_own
from gpucache.errors import RemoteError
from gpucache.model import CacheKey, Entry
from gpucache.remote.catalogue import read_catalogue
from gpucache.remote.folder import FolderObjects
from gpucache.remote.own_entries import object_name
from gpucache.remote.records import record_of, signed
from gpucache.remote.removal import SIGN, SIGN_TEXT, is_signed
from gpucache.remote.signing import load_signing_key, read_trusted
from gpucache.remote.store import RemoteStore
from gpucache.settings import Remote, Settings
from gpucache.store.format import encode as encode_file
from tests.patience import PATIENCE_S
from tests.remote.fleet import Fleet
from tests.remote.servers import Scripted, Silent, scripted
from tests.remote.test_own_entries import encode, made_entry

_ONE, _OTHER = made_entry("-O3"), made_entry("-O2")


class Machine:
    """A process that uses a store with patience, and its messages for the user."""

    def __init__(self, fleet: Fleet, **settings: object) -> None:
        self.told: list[str] = []
        trusted = str(settings.pop("trusted")) if "trusted" in settings else fleet.key().text
        signing = settings.pop("signing", None)
        remote = Remote(**{"url": str(fleet.store), "timeout_s": PATIENCE_S, **settings})  # type: ignore[arg-type]
        self.store = RemoteStore(remote, trusted, Path(str(signing)) if signing else None, self.told.append)

    def finds(self, *keys: CacheKey) -> list[bool]:
        """Whether each key has an entry in the store."""
        return [one is not None for one in self.store.find([(key,) for key in keys])]


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(tmp_path)
    fleet.others()
    return fleet


def _put(fleet: Fleet, entry: Entry, data: bytes | None = None, key: str = "ci") -> Path:
    """An entry in the store, or other bytes in its place."""
    fleet.key(key)
    name, right = encode(
        of_own(entry.key, entry.head, encode_file(entry)), load_signing_key(fleet.place / key)
    )
    path = fleet.store / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(right if data is None else data)
    (fleet.store / SIGN).write_bytes(SIGN_TEXT)
    return path


def test_an_entry_comes_with_the_bytes_of_its_file(fleet: Fleet) -> None:
    """The requested entry comes back; a missing one is None, without a message."""
    _put(fleet, _ONE)
    machine = Machine(fleet)
    found, missing = machine.store.find([(CacheKey("00" * 32), _ONE.key), (_OTHER.key,)])
    assert found == (_ONE, encode_file(_ONE)) and missing is None
    assert machine.told == []


def _of_another_system(fleet: Fleet) -> bytes:
    entry = of_own(_ONE.key, _ONE.head, encode_file(_ONE))._replace(system="triton")
    key = load_signing_key(fleet.place / "ci")
    return signed(record_of(entry), key).line + entry.files[0].data


def _signed(fleet: Fleet, file: bytes) -> bytes:
    """Bytes that a trusted key signed as the entry's."""
    return encode(of_own(_ONE.key, _ONE.head, file), load_signing_key(fleet.place / "ci"))[1]


_LIES: dict[str, Callable[[Fleet, bytes], bytes]] = {
    "another entry": lambda fleet, _: _put(fleet, _OTHER).read_bytes(),
    "another system": lambda fleet, _: _of_another_system(fleet),
    "another key": lambda fleet, _: _put(fleet, _ONE, key="eve").read_bytes(),
    "garbage": lambda _, __: b"\x80garbage" * 1000,
    "nothing": lambda _, __: b"",
    "truncated": lambda _, right: right[:-1],
    "longer": lambda _, right: right + b"x",
    "changed": lambda _, right: right[:-1] + bytes([right[-1] ^ 1]),
    "a line without end": lambda _, __: b"{" * (5 << 20),
    "no entry": lambda fleet, _: _signed(fleet, b"GPUCACHE"),
    "truncated and signed": lambda fleet, _: _signed(fleet, encode_file(_ONE)[:-1]),
    "another entry, signed": lambda fleet, _: _signed(fleet, encode_file(_OTHER)),
    "another key's fields, signed": lambda fleet, _: _signed(
        fleet, encode_file(_ONE._replace(detail=_OTHER.detail))
    ),
}


@pytest.mark.parametrize("lie", _LIES)
def test_a_store_that_lies_is_a_miss_and_one_warning(fleet: Fleet, lie: str) -> None:
    """Only the signed, sound entry of the key is used; other entries still are."""
    path = _put(fleet, _ONE)
    path.write_bytes(_LIES[lie](fleet, path.read_bytes()))
    _put(fleet, _OTHER)
    machine = Machine(fleet)
    assert machine.finds(_ONE.key, _OTHER.key) == [False, True]
    assert machine.finds(_ONE.key, _OTHER.key) == [False, True]
    [sentence] = machine.told
    assert _ONE.key.short in sentence and str(fleet.store) in sentence


def test_a_lie_under_one_key_does_not_hide_the_entry_of_another(fleet: Fleet) -> None:
    """Each trusted key has its own object; a sound one is used."""
    _put(fleet, _ONE, b"garbage", key="eve")
    _put(fleet, _ONE)
    machine = Machine(fleet, trusted=f"{fleet.key('eve').text} {fleet.key().text}")
    assert machine.finds(_ONE.key) == [True]


def test_an_object_that_is_too_large_is_not_read(fleet: Fleet) -> None:
    """Its length is bounded before anything is allocated; other entries still are used."""
    path = _put(fleet, _ONE)
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    _put(fleet, _OTHER)
    assert Machine(fleet).finds(_ONE.key, _OTHER.key) == [False, True]


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
def test_what_is_no_file_is_not_followed_or_waited_for(fleet: Fleet, kind: str) -> None:
    """A directory, a link or a pipe in the place of an object is a miss."""
    import os

    path = _put(fleet, _ONE)
    right = path.read_bytes()
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        (fleet.place / "outside").write_bytes(right)
        path.symlink_to(fleet.place / "outside")
    else:
        os.mkfifo(path)
    assert Machine(fleet).finds(_ONE.key) == [False]


@pytest.fixture(name="silent")
def _silent() -> Iterator[Silent]:
    with Silent() as server:
        yield server


class _Clock:
    """A time that passes by request alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("gpucache.remote.store.time.monotonic", lambda: self.now)


def _costs(machine: Machine, clock: _Clock, seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let each reply take some time; the limits of the requests that were made."""
    limits: list[float] = []

    def within(limit_s: float, action: Callable[[], object]) -> object:
        limits.append(limit_s)
        clock.now += min(seconds, limit_s)
        if seconds > limit_s:
            raise TimeoutError
        return action()

    monkeypatch.setattr("gpucache.remote.store.within", within)
    return limits


def _took(entry: Entry, seconds: float) -> Entry:
    return entry._replace(head=entry.head._replace(compile_ns=int(seconds * 1e9)))


@pytest.mark.parametrize("reply_s", [0.05, 0.5, 1.2, 99.0])
@pytest.mark.parametrize("hits", [False, True])
def test_a_slow_store_costs_a_process_no_more_than_its_limit(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, reply_s: float, hits: bool
) -> None:
    """In all, beyond the compile time that its hits saved; then one sentence has the numbers."""
    if hits:
        _put(fleet, _took(_ONE, 0.05))
    machine = Machine(fleet, timeout_s=1.25)
    clock = _Clock(monkeypatch)
    limits = _costs(machine, clock, reply_s, monkeypatch)
    found = sum(machine.finds(_ONE.key)[0] for _ in range(100))
    assert clock.now - 1000 - 0.05 * found <= 1.25 + 1e-6
    if hits and reply_s == 0.05:
        assert found == len(limits) == 100 and machine.told == []
        return
    said = [one for one in machine.told if "not asked for a minute" in one]
    assert len(said) == 1 and len(limits) < 40
    assert f"took {clock.now - 1000:.1f} s and saved {0.05 * found:.1f} s" in said[0]


def test_a_store_whose_hits_save_more_than_it_takes_is_asked_for_ever(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow it is."""
    _put(fleet, _took(_ONE, 5))
    machine = Machine(fleet, timeout_s=1.25)
    _costs(machine, _Clock(monkeypatch), 1.2, monkeypatch)
    assert [machine.finds(_ONE.key) for _ in range(20)] == [[True]] * 20


@pytest.mark.parametrize("how", ["slow", "broken"])
def test_a_store_is_asked_again_after_a_minute(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A server that lives for weeks comes back to it."""
    _put(fleet, _took(_ONE, 0.05))
    machine = Machine(fleet, timeout_s=1.25)
    clock = _Clock(monkeypatch)

    def broken(*_: object) -> None:
        raise RemoteError("it cannot be reached; check the network")

    if how == "slow":
        _costs(machine, clock, 99.0, monkeypatch)
    else:
        monkeypatch.setattr("gpucache.remote.store.within", broken)
    assert machine.finds(_ONE.key) == [False]
    assert not machine.store.queried
    _costs(machine, clock, 0.0, monkeypatch)
    assert machine.finds(_ONE.key) == [False]
    clock.now += 61
    assert machine.finds(_ONE.key) == [True]
    assert len(machine.told) == 1


def test_what_takes_too_long_to_send_is_not_reported_as_unsent(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a loaded machine it may arrive after the limit, as nothing stops it."""
    machine = Machine(fleet, writes=True, signing=fleet.place / "ci", timeout_s=0.01)
    create, limit, arrived = machine.store._create, threading.Event(), threading.Event()

    def late(entries: Sequence[Entry]) -> None:
        limit.wait()
        create(entries)
        arrived.set()

    monkeypatch.setattr(machine.store, "_create", late)
    machine.store.send(_ONE)
    machine.store.flush()
    limit.set()
    assert arrived.wait(PATIENCE_S)
    assert len(fleet.objects()) == 1
    [told] = machine.told
    assert told.startswith(
        f"sending to {fleet.store} took longer than 0.01 s, so no more is sent for a minute"
    )


def test_threads_that_begin_at_once_share_a_store(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for it is a wait for all that is sent."""
    both, begin = threading.Barrier(2, timeout=PATIENCE_S), RemoteStore.__init__

    def together(*given: Any) -> None:
        both.wait()
        begin(*given)

    monkeypatch.setattr(RemoteStore, "__init__", together)
    settings = Settings(root=None, root_origin="none", remote=Remote(str(fleet.store)))
    opened = open_stores(settings).remote
    assert opened is not None
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: opened(), range(2))
    assert first is second


def test_what_is_sent_is_signed_and_created_once(fleet: Fleet) -> None:
    """An existing object is unchanged, whatever it is."""
    path = _put(fleet, _OTHER, b"there before")
    machine = Machine(fleet, writes=True, signing=fleet.place / "ci")
    for entry in (_ONE, _OTHER, _ONE):
        machine.store.send(entry)
    machine.store.flush()
    assert Machine(fleet).finds(_ONE.key, _OTHER.key) == [True, False]
    assert path.read_bytes() == b"there before"
    assert machine.told == []


def _missed(fleet: Fleet, **settings: object) -> list[str]:
    """The sentences of a machine after two misses."""
    machine = Machine(fleet, **settings)
    assert [machine.finds(_ONE.key), machine.finds(_OTHER.key)] == [[False]] * 2
    return machine.told


def test_a_miss_in_a_store_that_is_none_is_one_warning(fleet: Fleet) -> None:
    """A directory that does not exist is named, also where sending makes it; one with entries is not."""
    wrong = str(fleet.place / "nosuch")
    for writes in (False, True):
        [sentence] = _missed(fleet, url=wrong, writes=writes, signing=fleet.place / "ci")
        assert f"{wrong} is not a store" in sentence
    path = _put(fleet, made_entry("-O1"))
    assert _missed(fleet) == [] and path.exists()


def test_a_miss_in_a_web_server_without_a_store_is_one_warning(fleet: Fleet) -> None:
    """So that a URL with a typo is seen; and one whose index another key signed names the key."""
    replies = {"": "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"}

    def answer(client: socket.socket, server: Scripted) -> None:
        name = server.requests[-1].split()[1].rpartition("/")[2]
        client.sendall(replies.get(name, replies[""]).encode())

    with scripted(answer) as server:
        [sentence] = _missed(fleet, url=f"{server.url}/wrong")
        assert f"{server.url}/wrong is not a store" in sentence
        eve = Machine(fleet, writes=True, signing=fleet.place / "eve", trusted=fleet.key("eve").text)
        eve.store.send(_ONE)
        eve.store.flush()
        for name in ("index", SIGN):
            data = (fleet.store / name).read_text()
            replies[name] = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n{data}"
        [sentence] = _missed(fleet, url=server.url)
        assert f"it is signed by the key {fleet.key('eve').id}, which is not trusted" in sentence


def test_a_miss_for_a_key_that_is_not_trusted_is_one_warning(fleet: Fleet) -> None:
    """It names the signer of the entry as pull does."""
    _put(fleet, _ONE, key="eve")
    [sentence] = _missed(fleet)
    assert f"{_ONE.key.short}, but it is signed by the key {fleet.key('eve').id}" in sentence


class _Served(FolderObjects):
    """A directory as a plain web server shows it."""

    lists = False


def test_what_is_sent_is_in_the_index_of_the_store(fleet: Fleet) -> None:
    """So a reader that lists nothing finds all of it, signed by the key of the sender."""
    machine = Machine(fleet, writes=True, signing=fleet.place / "ci")
    trusted = read_trusted(fleet.key().text)
    for entry in (_ONE, _OTHER):
        machine.store.send(entry)
        machine.store.flush()
    assert is_signed(_Served(fleet.store))
    found = read_catalogue(_Served(fleet.store), trusted)
    assert {one.record.key for one in found.records.values()} == {str(_ONE.key), str(_OTHER.key)}
    assert all(one.is_believed(trusted) for one in found.records.values())


def test_a_machine_that_only_sends_needs_no_trusted_key(fleet: Fleet) -> None:
    """Its own key is trusted: what it sent comes back."""
    machine = Machine(fleet, trusted="", writes=True, signing=fleet.place / "ci")
    fleet.key()
    assert machine.finds(_ONE.key) == [False]
    machine.store.send(_ONE)
    machine.store.flush()
    assert len(fleet.objects()) == 1
    assert machine.finds(_ONE.key) == [True]
    assert machine.told == []


def test_a_key_is_made_for_a_directory_alone(fleet: Fleet, silent: Silent) -> None:
    """It is the user's alone, and is told once; a store elsewhere is sent nothing without a named key."""
    machine = Machine(fleet, trusted="", writes=True)
    for entry in (_ONE, _OTHER):
        machine.store.send(entry)
        machine.store.flush()
    [sentence] = machine.told
    place = Path.home() / ".config" / "gpucache" / "key"
    assert str(place) in sentence and place.stat().st_mode & 0o777 == 0o600
    again = Machine(fleet, trusted="")
    assert again.finds(_ONE.key, _OTHER.key) == [True, True] and again.told == []
    place.unlink()
    there = Machine(fleet, url=f"oci://{silent.address}/team", trusted="", writes=True)
    there.store.send(_ONE)
    there.store.flush()
    [sentence] = there.told
    assert "gpucache key FILE" in sentence and silent.connections == [] and not place.exists()


@pytest.mark.parametrize("how", ["a public key", "no file", "open to others", "cannot be written"])
def test_what_cannot_be_sent_is_one_warning(fleet: Fleet, how: str) -> None:
    """Nothing is sent unsigned or in part, and no error reaches the program."""
    fleet.key()
    signing = fleet.place / "ci"
    if how == "a public key":
        signing = fleet.place / "ci.pub"
    elif how == "no file":
        signing = fleet.place / "nothing"
    elif how == "open to others":
        (fleet.place / "ci").chmod(0o644)
    else:
        fleet.store.rmdir()
        fleet.store.write_text("")
    machine = Machine(fleet, writes=True, signing=signing, trusted="")
    for _ in range(3):
        machine.store.send(_ONE)
        machine.store.flush()
    assert fleet.objects() == []
    [sentence] = machine.told
    assert "GPUCACHE_REMOTE" in sentence
    assert not machine.store.writes


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_a_store_that_takes_nothing_is_one_warning_and_still_read(
    tmp_path: Path, mount: Callable[[str], Path], how: str
) -> None:
    """Its entries are used; one that it cannot take is stored whole or not at all."""
    place = mount("size=256k")
    fleet = Fleet(place)
    fleet.others()
    _put(fleet, _ONE)
    if how == "full":
        (place / "rest").write_bytes(bytes((shutil.disk_usage(place).free >> 12) * 4096))
    else:
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    machine = Machine(fleet, writes=True, signing=place / "ci")
    machine.store.send(made_entry("-DBIG", b".version 8.0\n.target sm_90\n" + b"\n" * 20_000))
    machine.store.flush()
    assert len(machine.told) == 1
    assert Machine(fleet).finds(_ONE.key) == [True]
    assert [path.name for path in fleet.objects()] == [object_name(_ONE.key, fleet.key().id)[-81:]]


def test_a_web_server_is_not_written_to(fleet: Fleet, silent: Silent) -> None:
    """It can only be read; nothing is sent, and the message names the variable."""
    fleet.key()
    machine = Machine(fleet, url=f"http://{silent.address}/", writes=True, signing=fleet.place / "ci")
    machine.store.send(_ONE)
    machine.store.flush()
    [sentence] = machine.told
    assert "GPUCACHE_REMOTE_WRITE" in sentence
    assert silent.connections == []


def test_more_than_may_wait_is_left_to_push(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue of entries to send is bounded; dropped ones are reported once."""
    fleet.key()
    monkeypatch.setattr("gpucache.remote.store._MOST_BYTES", len(_ONE.payload) * 2)
    machine = Machine(fleet, writes=True, signing=fleet.place / "ci")
    held = threading.Event()
    create = machine.store._create
    monkeypatch.setattr(machine.store, "_create", lambda batch: (held.wait(), create(batch)))
    for value in range(9):
        machine.store.send(made_entry(f"-DX={value}"))
    held.set()
    machine.store.flush()
    [sentence] = machine.told
    assert "push" in sentence


def test_a_name_is_of_key_and_signer(fleet: Fleet) -> None:
    """So a program finds an entry with one request for each trusted key."""
    path = _put(fleet, _ONE)
    assert path == fleet.store / object_name(_ONE.key, fleet.key().id)
