"""Malicious stores: nothing unsigned or unsound reaches a cache, and sound entries do."""

import json
import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gpucache.answers.console import show
from gpucache.answers.transfer import PullSummary, Unsound
from gpucache.answers.transfer import pull as shown_pull
from gpucache.caches.portable import PortableEntry, PortableFile
from gpucache.errors import FormatError, RemoteError
from gpucache.folders import Folder
from gpucache.remote import catalogue as catalogues
from gpucache.remote.catalogue import finish_catalogue, read_catalogue
from gpucache.remote.objects import Objects
from gpucache.remote.push import push
from gpucache.remote.records import Record, RecordedFile, Signed, parse_line, record_of, signed
from gpucache.remote.signing import TrustedKeys
from tests.remote.test_push_pull import SYSTEMS, Fleet, _fleet, _results, _sound  # noqa: F401 - a fixture

every_system = pytest.mark.parametrize("system", SYSTEMS)


def _catalogued(fleet: Fleet, *lines: bytes) -> Path:
    """A catalogue of some lines in the store, written by somebody without a key."""
    data = b"".join(lines)
    path = fleet.place / "store" / "catalogues" / sha256(data).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _lines(fleet: Fleet) -> list[Signed]:
    return [
        parse_line(line)
        for path in (fleet.place / "store" / "catalogues").iterdir()
        for line in path.read_bytes().splitlines()
        if not line.startswith(b'{"seal')
    ]


def _junk(one: Signed, **changes: Any) -> bytes:
    """The line of a record with changes, under the name of its signer."""
    record = json.loads(one.line)
    record["record"] |= changes
    record["signature"] = "A" * 86 + "=="
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@every_system
def test_a_forged_line_of_the_same_entry_hides_nothing(fleet: Fleet, system: str) -> None:
    """Neither push nor pull mistakes it for the original, also after a merge."""
    there = fleet.make("a", system)
    fleet.push(there, key=fleet.key)
    forged = [_junk(one, program="forged", made_ns=1 << 62) for one in _lines(fleet)]
    for number in range(40):
        _catalogued(fleet, *forged, _junk(_lines(fleet)[0], program=f"{number}"))
    assert _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted)) == ["pulled"] * 3
    finish_catalogue(fleet.store)
    assert len(read_catalogue(fleet.store, fleet.trusted).names) == 1
    assert _results(fleet.pull(fleet.cache("c", system), trusted=fleet.trusted)) == ["pulled"] * 3


def test_a_seal_saves_the_check_of_each_signature(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for the catalogue, however many records it has."""
    fleet.push(fleet.make("a", "cupy", 30), key=fleet.key)
    checked: list[bytes] = []
    make = Ed25519PublicKey.from_public_bytes

    def counted(raw: bytes) -> Ed25519PublicKey:
        checked.append(raw)
        return make(raw)

    monkeypatch.setattr(Ed25519PublicKey, "from_public_bytes", staticmethod(counted))
    assert _results(fleet.pull(fleet.cache("b", "cupy"), trusted=fleet.trusted)) == ["pulled"] * 30
    assert len(checked) == 1


def test_a_seal_vouches_for_no_forged_line(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither if somebody adds one to a sealed catalogue, nor if its signer merges it with sound ones."""
    fleet.push(fleet.make("a", "cupy"), key=fleet.key)
    [path] = (fleet.place / "store" / "catalogues").iterdir()
    *lines, seal = path.read_bytes().splitlines(keepends=True)
    forged = _junk(parse_line(lines[0]), program="forged", made_ns=1 << 62)
    _catalogued(fleet, forged, *lines, seal)
    _catalogued(fleet, forged, seal)
    for merged in (False, True):
        if merged:
            monkeypatch.setattr(catalogues, "_MANY", 1)
            finish_catalogue(fleet.store, fleet.key)
        found = read_catalogue(fleet.store, fleet.trusted)
        programs = {one.record.program for one in found.records.values() if one.is_believed(fleet.trusted)}
        assert "forged" not in programs and len(found.records) == 4


@every_system
def test_forged_lines_keep_nobody_from_sending(fleet: Fleet, system: str) -> None:
    """An entry counts as sent only if a trusted record names it."""
    fleet.push(fleet.make("a", system), key=fleet.key)
    lines = _lines(fleet)
    for path in (fleet.place / "store").rglob("*"):
        if path.is_file():
            path.unlink()
    _catalogued(fleet, *(_junk(one) for one in lines))
    assert _results(fleet.push(fleet.cache("a", system), key=fleet.key)) == ["sent"] * 3
    assert _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted)) == ["pulled"] * 3


def test_garbage_in_the_place_of_an_own_entry_is_replaced(fleet: Fleet) -> None:
    """Whatever is there, the next push replaces it with its own object, and programs find it."""
    cache = fleet.make("a", "gpucache", 4)
    fleet.push(cache, key=fleet.key)
    objects = sorted(path for path in (fleet.place / "store" / "entries").rglob("*") if path.is_file())
    whole = [path.read_bytes() for path in objects]
    objects[0].write_bytes(b"")
    objects[1].write_bytes(whole[1][:-1])
    objects[2].write_bytes(whole[3])
    objects[3].write_bytes(whole[3].replace(b'"signature":"', b'"signature":"AAAA', 1))
    for path in (fleet.place / "store" / "catalogues").iterdir():
        path.unlink()
    outcomes = fleet.push(fleet.cache("a", "gpucache"), key=fleet.key)
    assert [one for one in _results(outcomes) if one != "Unsound"] == ["sent"] * 4
    assert [path.read_bytes() for path in objects] == whole
    assert _results(fleet.pull(fleet.cache("b", "gpucache"), trusted=fleet.trusted)) == ["pulled"] * 4


def test_an_older_object_of_the_same_own_entry_is_sound(fleet: Fleet) -> None:
    """Of two builds of a key by one signer the store may return either, and both are sound."""
    fleet.push(fleet.make("a", "gpucache", 1), key=fleet.key)
    [path] = (path for path in (fleet.place / "store" / "entries").rglob("*") if path.is_file())
    older = path.read_bytes()
    one = parse_line(older[: older.index(b"\n") + 1])
    file = older[older.index(b"\n") + 1 :]
    newer = signed(
        Record(
            one.record.system,
            one.record.key,
            (RecordedFile(one.record.files[0].name, "0" * 64, len(file), 0o600),),
            made_ns=one.record.made_ns + 1,
        ),
        fleet.key,
    )
    _catalogued(fleet, newer.line)
    assert _results(fleet.pull(fleet.cache("b", "gpucache"), trusted=fleet.trusted)) == ["pulled"]


class _Odd:
    """A store that another process lists or reads at the same time."""

    def __init__(self, store: Objects, before_read: Callable[[], object]) -> None:
        self._store = store
        self._before = before_read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        wanted = list(names)
        if any(name.startswith(catalogues.FOLDER) for name in wanted):
            before, self._before = self._before, lambda: None
            before()
        return self._store.read(wanted, limit_bytes)


@every_system
def test_catalogues_that_are_merged_while_they_are_read_lose_nothing(
    fleet: Fleet, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose listed catalogues are gone lists again; so does a push, which sends nothing twice."""
    cache: Any = fleet.make("a", system)
    for entry in list(cache.scan()):
        pushed = push(
            [(cache, [entry])],
            fleet.store,
            key=fleet.key,
            trusted=fleet.trusted,
            sources=True,
            dry_run=False,
            progress=lambda *_: None,
        )
        assert _results(list(pushed)) == ["sent"]
    assert len(list((fleet.place / "store" / "catalogues").iterdir())) == 3
    monkeypatch.setattr(catalogues, "_MANY", 1)
    odd: Any = _Odd(fleet.store, lambda: finish_catalogue(fleet.store))
    assert _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted, store=odd)) == ["pulled"] * 3


def test_a_listing_goes_on_when_an_object_goes_away(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object removed between its name and its size is left out, and nothing else."""
    store = fleet.store
    list(store.create((f"blobs/ab/{number}", b"x") for number in range(20)))
    lstat = Folder.lstat

    def gone(folder: Folder, name: str) -> os.stat_result:
        if name == "7":
            raise FileNotFoundError(name)
        return lstat(folder, name)

    monkeypatch.setattr(Folder, "lstat", gone)
    assert len(list(store.listed("blobs/"))) == 19


def _replaced(path: Path, what: str) -> None:
    path.unlink()
    if what == "link":
        path.symlink_to("/etc/passwd")
    elif what == "directory":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "larger":
        path.write_bytes(b"x")
        os.truncate(path, 1 << 40)


@every_system
@pytest.mark.parametrize("what", ["link", "directory", "pipe", "larger", "gone"])
def test_what_is_no_object_damages_its_entry_alone(fleet: Fleet, system: str, what: str) -> None:
    """Others are pulled, and none of it is read."""
    fleet.push(fleet.make("a", system), key=fleet.key)
    folder = fleet.place / "store" / ("entries" if system == "gpucache" else "blobs")
    _replaced(next(path for path in sorted(folder.rglob("*")) if path.is_file()), what)
    results = _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted))
    assert "damaged" in results
    assert _sound(fleet.cache("b", system)) == results.count("pulled") == 3 - results.count("damaged")


@pytest.mark.parametrize("what", ["link", "directory", "pipe", "larger", "lines", "newlines", "deep"])
def test_what_is_no_catalogue_is_one_finding(fleet: Fleet, what: str) -> None:
    """Of any size and any number of lines; entries of others are pulled."""
    fleet.push(fleet.make("a", "cupy"), key=fleet.key)
    if what == "lines":
        _catalogued(fleet, *(b"{%d}\n" % number for number in range(1000)))
    elif what == "newlines":
        _catalogued(fleet, b"\n" * 100_000)
    elif what == "deep":
        _catalogued(fleet, b"[" * 1_000_000)
    else:
        _replaced(_catalogued(fleet, b"x"), what)
    outcomes = fleet.pull(fleet.cache("b", "cupy"), trusted=fleet.trusted)
    found = [one for one in outcomes if isinstance(one, Unsound)]
    assert len(found) <= 1
    assert _results(outcomes).count("pulled") == 3


_BOUND_BYTES = 3 << 30


def _bounded(work: Callable[[], object]) -> None:
    """Do some work in a child whose memory is bounded."""
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (_BOUND_BYTES, _BOUND_BYTES))
            work()
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="bounds memory as Linux does")
def test_sizes_of_a_store_are_not_believed(fleet: Fleet) -> None:
    """Objects of a terabyte, 256 as large as a batch's largest, and entries without a record."""
    fleet.push(fleet.make("a", "cupy", 100), key=fleet.key)
    blobs = [path for path in (fleet.place / "store" / "blobs").rglob("*") if path.is_file()]
    for number, path in enumerate(blobs):
        os.truncate(path, (1 << 40) if number % 2 else (63 << 20))
    for number in range(20):
        path = fleet.place / "store" / "entries" / "ab" / f"{'ab' * 32}-{number:016x}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.truncate(path, 3 << 30)

    def pulled() -> None:
        caches = [fleet.cache("b", "cupy"), fleet.cache("b", "gpucache")]
        assert set(_results(fleet.pull(*caches, trusted=fleet.trusted))) == {"damaged"}

    _bounded(pulled)


def _with(record: Record, **changes: Any) -> Signed:
    return Signed(Record(**{**{name: getattr(record, name) for name in record.__struct_fields__}, **changes}))


NAMES = (
    "../x", "/x", "a/../../x", "a//b", "a/./b", "", ".", "..", "a\\b", "c:x", "a\0b", "a\nb", "a\x1b[2Jb",
    "a" * 1025, "/".join("a" * 17), "a/", "\ud800",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_that_leave_a_cache_are_refused(name: str) -> None:
    """A record with such a file is invalid."""
    record = Record("triton", "k", (RecordedFile(name, "a" * 64, 1, 0o600),))
    with pytest.raises((FormatError, UnicodeEncodeError)):
        parse_line(Signed(record).line)


_FILE = RecordedFile("a/b", "a" * 64, 1, 0o600)


@pytest.mark.parametrize(
    "changes",
    [
        {"files": ()},
        {"files": (_FILE, _FILE)},
        {"files": (_FILE,) * 20_001},
        {"files": tuple(RecordedFile(f"a/{number}", "a" * 64, 1, 0o600) for number in range(20_001))},
        {"files": (RecordedFile("a", "a" * 64, 1, 0o4755),)},
        {"files": (RecordedFile("a", "a" * 64, 1, 0o1777),)},
        {"files": (RecordedFile("a", "a" * 64, 5 << 30, 0o600),)},
        {"files": tuple(RecordedFile(f"{number}", "a" * 64, 3 << 30, 0o600) for number in range(2))},
        {"files": (RecordedFile("a", "a" * 64 + "\n", 1, 0o600),)},
        {"files": (RecordedFile("a", "A" * 64, 1, 0o600),)},
        {"system": "triton\n"},
        {"system": "../x"},
        {"system": "a" * 65},
        {"key": "k" * 4097},
        {"facts": (("a", "b"),) * 65},
        {"facts": (("a" * 4097, "b"),)},
        {"made_ns": -1},
        {"made_ns": 1 << 63},
    ],
)
def test_records_beyond_their_bounds_are_refused(changes: dict[str, Any]) -> None:
    """Sizes, counts, modes and names have bounds."""
    with pytest.raises(FormatError):
        parse_line(_with(Record("triton", "k", (_FILE,)), **changes).line)


@pytest.mark.parametrize(
    "changes",
    [
        {"made_ns": -5, "compile_ns": -7},
        {"made_ns": 1 << 80, "compile_ns": 1 << 80},
        {"program": "k\udcff\n\x1b[2J"},
        {"program": "x" * 10_000},
    ],
)
def test_what_only_people_read_keeps_no_entry_back(changes: dict[str, Any]) -> None:
    """Times before 1970 or far away, and names that are not text, are converted to a record's form."""
    entry = PortableEntry("triton", "k", (PortableFile("a", b"x", 0o600),))
    record = record_of(entry._replace(**changes))
    assert parse_line(Signed(record).line).record == record


@pytest.mark.parametrize(
    "changes",
    [
        {"facts": (("a", "b\udcff"),)},
        {"facts": (("a", "b"),) * 65},
        {"key": "k" * 5000},
        {"files": ()},
        {"files": (PortableFile("a", b"x", 0o600),) * 2},
        {"files": tuple(PortableFile(f"{'x' * 900}{number}", b"", 0o600) for number in range(5000))},
    ],
)
def test_what_no_machine_would_take_is_not_recorded(changes: dict[str, Any]) -> None:
    """A push reports that instead of sending it again each time."""
    entry = PortableEntry("triton", "k", (PortableFile("a", b"x", 0o600),))
    with pytest.raises(FormatError):
        record_of(entry._replace(**changes))


def test_texts_of_a_store_are_shown_safely(fleet: Fleet) -> None:
    """Escapes and line breaks in programs, facts and names do not reach a terminal."""
    evil = "\x1b]0;gotcha\x07\n\r\u202e\x9b31m"
    facts = tuple((f"{evil}{number}", evil * 100) for number in range(64))
    record = Record("cupy", evil, (_FILE,), facts, program=evil, target=evil, kind=evil)
    fleet.push(fleet.make("a", "cupy", 1), key=fleet.key)
    for one in (signed(record, fleet.key), Signed(record)):
        _catalogued(fleet, one.line)
    (fleet.place / "store" / "catalogues" / "x\x1b[2J\n").write_bytes(b"x")
    summary = PullSummary()
    shown = list(summary.of(fleet.pull(fleet.cache("b", "cupy"), trusted=fleet.trusted)))  # type: ignore[arg-type]
    stream = StringIO()
    show(stream, shown_pull(shown, summary, whole=True))
    text = stream.getvalue()
    assert text
    assert "\x1b" not in text and "\x07" not in text and "\x9b" not in text and "\u202e" not in text


def test_a_store_has_as_many_objects_as_trusted_keys_signed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are bounded as in any store, and untrusted records raise no bound."""
    for name in ("objects", "folder", "catalogue"):
        monkeypatch.setattr(f"gpucache.remote.{name}.MOST_OBJECTS", 3)
    caches = [fleet.make("a", "gpucache", 20)]
    fleet.push(*caches, key=fleet.key)
    assert set(_results(fleet.push(*caches, key=fleet.key))) == {"present"}
    assert len(read_catalogue(fleet.store, fleet.trusted, objects=True).objects) == 20
    with pytest.raises(RemoteError, match="more than 3 objects"):
        read_catalogue(fleet.store, TrustedKeys({}), objects=True)
