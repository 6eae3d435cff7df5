"""Promises of every cache, whichever program owns it.

Whatever is at its place, only our own errors are raised, damage is reported, and foreign files are
unchanged. The facts that a test needs of a system are in ``tests.contracts.examples``.
"""

import gc
import json
import os
import pathlib
import shutil
import stat
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpucache.answers.entries import CacheEntry
from gpucache.answers.evict import GONE, Kept
from gpucache.answers.verify import Checked, Finding
from gpucache.caches.interface import Cache, Wanted
from gpucache.caches.known_caches import Unusable
from gpucache.caches.registry import NAMES, OWN, SYSTEMS, load_system
from gpucache.engine.inspect import foreign_state
from gpucache.errors import CacheUnusableError, FormatError, GpucacheError, UsageError
from gpucache.folders import Folder
from tests.contracts.examples import EXAMPLES, Example, age, open_example
from tests.unprivileged import NOBODY, as_nobody, needs_root

_STRANGER = 12345
"""The uid of no user."""
_GONE_OR_CHANGED = ("rocfft",)
"""Systems that cannot distinguish a removal from a change: an entry is known only by its content."""
_TAKEN_FROM_OTHERS = (OWN, "pyopencl")
"""Systems whose repair removes another user's files: to quarantine, or as programs would unpickle them."""
_OWN_WAY = (OWN, "sycl", "futhark", "rocfft", "pyopencl", "pocl", "cuda", "qt")
"""Systems with their own rules for a directory in place of a file; Qt's is shown by the content of files."""
_NO_PROCESS = 99_999_999
"""A number that no process has."""
_WANTED: dict[str, Wanted] = {
    "sycl": {"kernel": (b"k",)},
    "rocfft": {"kernel_name": (b"k",)},
    "futhark": {"source": (b"x",), "option": (b"-G",)},
    "pyopencl": {"source": (b"x",)},
    "pocl": {"kernel": (b"k",)},
    "cuda.core": {"key": (b"abcd",)},
    "cupy": {"key": (b"abcd",)},
    "jax": {"key": (b"abcd",)},
}
_REFUSED = "untrusted"
"""The findings of verify for a place that cannot be opened at all."""
_UNREAD = (
    "may not be",
    "cannot be looked at",
    "cannot be accessed",
    "cannot be entered",
    "cannot be read",
    "cannot be opened",
)
Checks = list[tuple[Checked, CacheEntry | None]]
every_system = pytest.mark.parametrize("name", EXAMPLES)
every_judged = pytest.mark.parametrize("name", [name for name, one in EXAMPLES.items() if not one.opaque])
"""The systems whose format gpucache reads."""
every_other = pytest.mark.parametrize("name", SYSTEMS)


def _verified(cache: Cache) -> Checks:
    """All of a cache, checked in the order of verify."""
    entries = list(cache.scan())
    return [*((cache.check(entry), entry) for entry in entries), *((one, None) for one in cache.leftovers())]


def _repaired(cache: Cache) -> list[Finding]:
    """The findings after a repair of everything that can be repaired."""
    found = [cache.repair(checked, entry) for checked, entry in _verified(cache) if checked.findings]
    return [finding for checked in found for finding in checked.findings]


def _findings(cache: Cache) -> list[Finding]:
    return [finding for checked, _ in _verified(cache) for finding in checked.findings]


def _keys(cache: Cache) -> set[str]:
    return {entry.key for entry in cache.scan()}


def _asked(cache: Cache) -> list[CacheEntry]:
    """The entries of a cache after every read-only call; only our own errors are raised."""
    cache.location()
    entries = list(cache.scan())
    cache.find("")
    for entry in entries:
        cache.check(entry)
        for ask in (cache.report, cache.extract):
            with suppress(FormatError):
                ask(entry)
    list(cache.leftovers())
    with suppress(GpucacheError):
        list(cache.explain(_WANTED.get(cache.name, {})))
    return entries


def _emptied(cache: Cache) -> list[Kept]:
    """The entries that stay, and why, after a removal of everything that may go."""
    kept = [cache.remove(entry, "--all") for entry in list(cache.scan())]
    cache.finish_removals()
    return [one for one in kept if one is not None]


def _lies(root: Path) -> dict[str, object]:
    """Everything below a directory: the targets of links, the contents and times of files."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        folder = path.is_dir() and not path.is_symlink()
        held = "a folder" if folder else path.readlink() if path.is_symlink() else path.read_bytes()
        found[str(path.relative_to(root))] = held if folder else (held, path.lstat().st_mtime_ns)
    return found


def _lay(path: Path, content: bytes = b"mine, and dear to me\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_every_system_keeps_this_contract() -> None:
    """Every system has an example of its cache."""
    assert set(EXAMPLES) == set(NAMES)


# Places that are not as a cache is.


@every_system
@pytest.mark.parametrize("made", [False, True])
def test_an_absent_or_empty_place_has_nothing(name: str, made: bool, tmp_path: Path) -> None:
    """An interrupted owner leaves a directory, or an empty file; reading it creates nothing."""
    place = tmp_path / "cache" / EXAMPLES[name].place
    if made:
        place.parent.mkdir(exist_ok=True)
        place.touch() if EXAMPLES[name].place else place.mkdir()
    cache = open_example(name, place)
    assert not _asked(cache) and not _findings(cache) and not cache.finish_removals()
    assert not any(finding.repaired for finding in _repaired(cache))
    assert len(list(tmp_path.rglob("*"))) == made * (1 + bool(EXAMPLES[name].place))


@every_system
def test_a_place_of_the_wrong_kind_is_refused_or_told(name: str, tmp_path: Path) -> None:
    """A file in place of a directory, or a directory in place of a file, is neither emptied nor fixed."""
    place = tmp_path / EXAMPLES[name].place if EXAMPLES[name].place else tmp_path / "cache"
    _lay(place / "diary.txt" if EXAMPLES[name].place else place)
    before = _lies(tmp_path)
    cache = open_example(name, place)
    assert all(entry.damage for entry in _asked(cache))
    assert not any(finding.repaired for finding in _repaired(cache))
    assert len(_emptied(cache)) == len(list(cache.scan()))
    found = _findings(cache)
    assert found and (not isinstance(cache, Unusable) or "; " in found[0].detail)
    assert _lies(tmp_path) == before


@every_system
def test_the_folder_of_something_else_is_left_alone(name: str, tmp_path: Path) -> None:
    """In a home nothing is recognised, listed as removable, changed or removed."""
    for path in ("thesis/a.tex", "photos/1.jpg", ".bashrc", "notes.txt"):
        _lay(tmp_path / "home" / path)
    before = _lies(tmp_path)
    cache = open_example(name, tmp_path / "home" / EXAMPLES[name].place)
    assert all(entry.stays for entry in _asked(cache))
    assert not any(finding.repaired for finding in _repaired(cache))
    assert len(_emptied(cache)) == len(list(cache.scan()))
    if name in SYSTEMS:
        found = [str(finding.kind) for finding in _findings(cache)]
        assert (
            found == [_REFUSED if isinstance(cache, Unusable) else "unsupported"] or not EXAMPLES[name].alone
        )
        assert not load_system(name).recognises(tmp_path / "home")
    assert _lies(tmp_path) == before


def _everything_asked(name: str, place: Path) -> dict[str, list[str]]:
    """The report about a place, with a repair of files that belong to no entry."""
    if name in SYSTEMS:
        load_system(name).recognises(place)
    cache = open_example(name, place)
    keys = [entry.key for entry in _asked(cache)]
    left = list(cache.leftovers())
    repaired = [one for checked in left for one in cache.repair(checked, None).findings]
    return {
        "keys": keys,
        "problems": list(cache.location().problems),
        "findings": [str(one.kind) for one in repaired],
        "sentences": [one.detail for one in repaired],
        "repaired": [one.detail for one in repaired if one.repaired],
    }


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that everybody may enter, unlike pytest's own."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@needs_root
@every_system
@pytest.mark.parametrize("closed", ["above", "itself", "of another", "only listed", "only entered"])
def test_a_place_that_may_not_be_read(name: str, closed: str, open_folder: Path) -> None:
    """It is a problem of its location and a finding, it has no entries, and nothing raises."""
    if (closed == "only entered" and EXAMPLES[name].place) or (closed == "only listed" and name == OWN):
        return  # its file can be opened by name; ours opens, and says so when it is read
    root = open_folder / "above" / "root"
    place = EXAMPLES[name].make(root)
    if closed == "of another":
        os.chown(root, _STRANGER, _STRANGER)
    (open_folder / "above").chmod(0o700 if closed == "above" else 0o755)
    root.chmod({"only listed": 0o704, "only entered": 0o701}.get(closed, 0o700))
    told = json.loads(as_nobody(lambda: json.dumps(_everything_asked(name, place))))
    assert not told["keys"] and not told["repaired"]
    assert told["findings"] == ["untrusted"]
    assert any(words in one for one in told["problems"] for words in _UNREAD), told["problems"]
    assert not any("Errno" in one for one in (*told["problems"], *told["sentences"]))


@needs_root
@every_other
@pytest.mark.parametrize("mode", [0o704, 0o701, 0o700])
def test_a_folder_of_entries_that_may_not_be_read_is_told(name: str, mode: int, open_folder: Path) -> None:
    """Whether it can be only listed, only entered, or neither: its problem is reported."""
    root = open_folder / "root"
    place = EXAMPLES[name].make(root)
    folders = [path for path in root.rglob("*") if path.is_dir()]
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for folder in folders:
        folder.chmod(mode)
        told = as_nobody(lambda: str([one for one, _ in _verified(open_example(name, place))]))
        assert any(words in told for words in (*_UNREAD, "could be read", "not looked into")), (folder, told)
        folder.chmod(0o755)


@needs_root
@every_system
def test_a_place_that_may_not_be_written_keeps_its_entries(name: str, open_folder: Path) -> None:
    """Each says why it was not removed, and how to fix that."""
    root = open_folder / "root"
    place = EXAMPLES[name].make(root)
    for path in (*root.rglob("*"), root):
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o500 if path.is_dir() else 0o400)

    def work() -> str:
        cache = open_example(name, place)
        assert len(list(cache.scan())) == (1 if EXAMPLES[name].whole else 3)
        return json.dumps([[kept.reason, kept.gone] for kept in _emptied(cache)])

    before = _lies(root)
    kept = json.loads(as_nobody(work))
    assert len(kept) == (1 if EXAMPLES[name].whole else 3)
    assert all("; " in reason and not gone and "Errno" not in reason for reason, gone in kept), kept
    assert _lies(root) == before


# The contents of one's own cache.


def _made(name: str, tmp_path: Path, entries: int = 3) -> tuple[Example, Cache, list[CacheEntry]]:
    """The example of a system, its cache, and its scanned entries."""
    place = EXAMPLES[name].make(tmp_path / "cache", entries)
    cache = open_example(name, place)
    return EXAMPLES[name], cache, list(cache.scan())


@every_system
def test_a_sound_cache_has_no_findings(name: str, tmp_path: Path) -> None:
    """Every entry counts as checked, and none is damaged or bound to stay."""
    example, cache, entries = _made(name, tmp_path)
    assert len(entries) == (1 if example.whole else 3)
    assert not any(entry.damage for entry in entries)
    assert all(bool(entry.stays) is example.opaque for entry in entries)
    assert {entry.cache for entry in entries} == {name}
    checked = [cache.check(entry) for entry in entries]
    assert not _findings(cache) and all(one.counts and not one.unchecked for one in checked)
    assert not any(one.notes for one in checked) or example.whole or example.opaque
    if cache.divides:
        assert list(cache.checked()) == list(zip(entries, checked, strict=True))


@every_system
def test_looking_leaves_every_time_alone(name: str, tmp_path: Path) -> None:
    """No call changes when a file was last read or written."""
    _, cache, entries = _made(name, tmp_path)

    def times() -> list[tuple[Path, int, int]]:
        seen = [(path, path.lstat()) for path in sorted((tmp_path / "cache").rglob("*"))]
        return [(path, one.st_atime_ns, one.st_mtime_ns) for path, one in seen if not path.is_dir()]

    def shown(these: list[CacheEntry]) -> list[CacheEntry]:
        return [one._replace(handle=None) for one in these]

    before = times()
    assert shown(_asked(cache)) == shown(entries)
    assert times() == before


@every_system
def test_an_extraction_gives_the_payload(name: str, tmp_path: Path) -> None:
    """Byte for byte as it was compiled; an opaque system raises FormatError."""
    example, cache, entries = _made(name, tmp_path)
    if example.payload is None:
        with pytest.raises(FormatError):
            cache.extract(entries[0])
        return
    expected = sorted(example.payload(number) for number in range(3))
    assert sorted(map(cache.extract, entries)) == expected


@every_system
def test_a_checksum_that_is_claimed_finds_every_changed_byte(name: str, tmp_path: Path) -> None:
    """An entry whose payload has a changed bit is never reported as verified by checksum."""
    example, cache, (first, *_) = _made(name, tmp_path)
    if not cache.check(first).checksum:
        return
    sound, payload = example.content(first), cache.extract(first)
    begin = max(0, sound.find(payload))
    for place in range(begin, begin + min(len(payload), len(sound) - begin), 7):
        changed = bytearray(sound)
        changed[place] ^= 0x10
        example.change(first, bytes(changed))
        (again,) = [one for one in open_example(name, tmp_path / "cache").scan() if one.path == first.path]
        checked = cache.check(again)
        assert not checked.checksum or any(finding.kind.wrong for finding in checked.findings), place


@every_judged
def test_a_cut_entry_is_found_and_gives_no_payload(name: str, tmp_path: Path) -> None:
    """It is wrong, its neighbours are not, and extraction raises FormatError."""
    example, _, (first, *others) = _made(name, tmp_path)
    example.cut(first)
    cache = open_example(name, tmp_path / "cache" / example.place)
    wrong = {checked.entry for checked, _ in _verified(cache) if checked.findings}
    cut, *_ = [entry for entry in cache.scan() if entry.key == first.key and entry.path == first.path]
    assert first.key in wrong or example.whole
    assert not wrong & {entry.key for entry in others}
    with pytest.raises(FormatError) as refused:
        cache.extract(cut)
    assert example.whole or "run 'gpucache verify'" in str(refused.value)


@every_system
def test_the_beginning_of_a_key_finds_its_entries(name: str, tmp_path: Path) -> None:
    """A key's beginning finds only those. Our own store needs two digits, and finds nothing for fewer."""
    _, cache, entries = _made(name, tmp_path, 12)
    keys = [entry.key for entry in entries]
    for digits in (*((0, 1) if name != OWN else ()), 2, 4, 8, len(keys[0])):
        prefix = keys[0][:digits]
        assert {one.key for one in cache.find(prefix)} == {key for key in keys if key.startswith(prefix)}
    assert not cache.find("zz") and not cache.find(f"{keys[0]}0")


@pytest.fixture
def held_bytes() -> Iterator[Callable[[], int]]:
    """The memory held by objects made since the test began.

    Without pathlib's: it interns names, and Python's table of these grows by megabytes at any time.
    """
    but_names = tracemalloc.Filter(inclusive=False, filename_pattern=pathlib.__file__)

    def held() -> int:
        gc.collect()
        return sum(one.size for one in tracemalloc.take_snapshot().filter_traces([but_names]).traces)

    gc.collect()
    gc.freeze()  # so that a collection looks at nothing older, and is quick
    yield held
    tracemalloc.stop()
    gc.unfreeze()


@every_system
def test_a_scan_holds_few_entries_at_once(name: str, tmp_path: Path, held_bytes: Callable[[], int]) -> None:
    """Between any two of them it needs far less than all of them take."""
    number = 120 if name == "gpucache" else 60  # as that has buffers of one size for any number
    example, cache = _made(name, tmp_path, number)[:2]
    if example.whole:
        return
    deque(cache.scan(beside=True), maxlen=0)  # imports the modules of a scan
    tracemalloc.start()
    one_by_one = max(held_bytes() for at, _ in enumerate(cache.scan(beside=True)) if at % 10 == 5)
    held = list(cache.scan())
    assert len(held) == number and one_by_one < held_bytes() / 2


@every_system
def test_a_scan_tells_what_lies_beside_the_entries_as_a_walk_does(name: str, tmp_path: Path) -> None:
    """The same problems come after it, whether or not it kept them, and then again."""
    place, cache, _ = _messed_up(name, tmp_path)
    walked = list(open_example(name, place).leftovers())
    assert list(cache.scan(beside=True)) == list(cache.scan(beside=True))
    assert list(cache.leftovers()) == walked == list(cache.leftovers())


def test_a_state_lists_the_directories_of_a_cache_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner is found from the first entry alone."""
    _, cache, entries = _messed_up("triton", tmp_path)
    listed: Counter[Path] = Counter()
    as_ever = Folder.entries

    def entries_of(folder: Folder) -> Iterator[os.DirEntry[str]]:
        listed[folder.path] += 1
        return as_ever(folder)

    monkeypatch.setattr(Folder, "entries", entries_of)
    assert foreign_state(cache).findings
    assert sorted(listed[Path(one.path).parent] for one in entries)[:2] == [1, 1]


def _messed_up(name: str, tmp_path: Path) -> tuple[Path, Cache, list[CacheEntry]]:
    """A cache with files and links of others in its directories."""
    _, cache, entries = _made(name, tmp_path)
    root = Path(cache.location().root)
    for folder in [one for one in (root, *root.rglob("*")) if one.is_dir()]:
        folder.joinpath("diary.txt").write_text("mine")
        folder.joinpath("link").symlink_to(tmp_path)
    if root.is_dir():
        age(root)
    return root, cache, entries


# Entries that others remove and rewrite meanwhile.


@every_judged
def test_an_entry_that_vanished_since_the_scan(name: str, tmp_path: Path) -> None:
    """It does not count as checked, its report and payload raise FormatError, and its removal is reported."""
    example, cache, (first, *_) = _made(name, tmp_path)
    example.take(first)
    checked = cache.check(first)
    assert not checked.counts and checked.notes and not checked.findings
    if not example.whole:
        with pytest.raises(FormatError):
            cache.report(first)
    with pytest.raises(FormatError):
        cache.extract(first)
    kept = cache.remove(first, "--all")
    assert kept == (Kept() if name in _GONE_OR_CHANGED else GONE)


@every_system
def test_an_entry_of_another_cache_is_a_mistake(name: str, tmp_path: Path) -> None:
    """An entry scanned by another cache can be neither checked nor removed."""
    example, cache, (first, *_) = _made(name, tmp_path)
    stranger = CacheEntry("another", first.key, first.path, 0, 0, 0)
    with pytest.raises(TypeError):
        cache.remove(stranger, "--all")
    if not example.whole:
        with pytest.raises(TypeError):
            cache.check(stranger)


@every_judged
def test_a_damaged_entry_that_vanished_is_fixed(name: str, tmp_path: Path) -> None:
    """A vanished entry counts as repaired."""
    example, cache, (first, *_) = _made(name, tmp_path)
    example.cut(first)
    cache = open_example(name, tmp_path / "cache" / example.place)
    (first,) = [entry for entry in cache.scan() if entry.key == first.key]
    checked = cache.check(first)
    example.take(first)
    cache.repair(checked, first)
    assert first.key not in _keys(cache)


@every_judged
def test_a_damaged_entry_that_was_built_anew_is_not_repaired(name: str, tmp_path: Path) -> None:
    """An entry that a program wrote since the check is sound, and is unchanged."""
    example, cache, (first, *_) = _made(name, tmp_path)
    sound = example.content(first)
    example.cut(first)
    cache = open_example(name, tmp_path / "cache" / example.place)
    (first,) = [entry for entry in cache.scan() if entry.key == first.key]
    checked = cache.check(first)
    example.change(first, sound)
    before = _lies(tmp_path)
    told = cache.repair(checked, first)
    assert _lies(tmp_path) == before
    assert not any(finding.repaired for finding in told.findings)
    assert not _findings(open_example(name, tmp_path / "cache" / example.place))


@every_judged
def test_an_entry_that_changed_since_the_scan_is_kept(name: str, tmp_path: Path) -> None:
    """A program built it anew, so the plan to remove it no longer applies."""
    example, cache, (first, *_) = _made(name, tmp_path)
    example.change(first)
    kept = cache.remove(first, "--all")
    assert kept == Kept() and first.key in _keys(cache)


@every_judged
def test_a_removal_twice(name: str, tmp_path: Path) -> None:
    """The second says that it is gone; the other entries stay as they are."""
    example, cache, (first, *others) = _made(name, tmp_path)
    assert cache.remove(first, "--all") is None
    again = cache.remove(first, "--all")
    assert again == (Kept() if name in _GONE_OR_CHANGED else GONE) or (example.whole and again is not None)
    cache.finish_removals()
    assert _keys(cache) == {entry.key for entry in others} and not _findings(cache)


@pytest.mark.parametrize("name", [name for name, one in EXAMPLES.items() if one.opaque])
def test_an_entry_that_nobody_can_judge(name: str, tmp_path: Path) -> None:
    """However it is cut it is called sound, with one note for the cache; it stays, with the reason."""
    example, _, (first, *_) = _made(name, tmp_path)
    example.cut(first)
    cache = open_example(name, tmp_path / "cache")
    checked = [one for one, _ in _verified(cache)]
    assert not any(one.findings for one in checked) and sum(len(one.notes) for one in checked) == 1
    before = _lies(tmp_path)
    kept = _emptied(cache)
    assert len(kept) == 3 and all(f"remove {tmp_path}/cache as a whole" in one.reason for one in kept)
    assert _lies(tmp_path) == before
    example.take(first)
    assert not cache.check(first).counts
    with pytest.raises(FormatError):
        cache.report(first)


# Repairs, and foreign files.


@every_judged
def test_a_repair_fixes_what_it_says_it_fixed(name: str, tmp_path: Path) -> None:
    """A second verify finds no damage, all sound entries, and nothing left to repair."""
    example, cache, (first, *others) = _made(name, tmp_path)
    example.cut(first)
    cache = open_example(name, tmp_path / "cache" / example.place)
    found = _repaired(cache)
    again = open_example(name, tmp_path / "cache" / example.place)
    assert found and all(finding.repaired is (not example.whole) for finding in found)
    left = _findings(again)
    assert bool(left) is not (not example.whole)
    assert {entry.key for entry in others} <= _keys(again)
    assert [finding.repaired for finding in _repaired(again)] == [False] * len(left)


@needs_root
@every_system
def test_an_entry_of_somebody_else_is_left_by_a_repair(name: str, tmp_path: Path) -> None:
    """An entry that is reported as untrusted stays; one that does not stay is reported as gone."""
    example, cache, (first, *_) = _made(name, tmp_path)
    path = Path(first.path)
    for one in (path, *path.rglob("*")):
        os.chown(one, _STRANGER, _STRANGER)
    cache = open_example(name, tmp_path / "cache" / example.place)
    before = _lies(tmp_path)
    found = _repaired(cache)
    assert any(finding.kind == "untrusted" and str(_STRANGER) in finding.detail for finding in found), found
    taken = name in _TAKEN_FROM_OTHERS
    assert all(finding.repaired is taken for finding in found)
    assert (first.key not in _keys(cache)) is taken
    assert taken or _lies(tmp_path) == before


@every_system
def test_an_entry_that_others_may_write_is_untrusted(name: str, tmp_path: Path) -> None:
    """Any user could have replaced its payload, whatever it is now."""
    example, _, (first, *_) = _made(name, tmp_path)
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_dir():
            path.chmod(0o755)  # in a directory that no other user may enter no other user writes
    (tmp_path / "cache").chmod(0o755)
    example.file_of(first).chmod(0o602)
    found = _findings(open_example(name, tmp_path / "cache" / example.place))
    assert [str(finding.kind) for finding in found] == ["untrusted"]
    assert "write" in found[0].detail


def _places(root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in sorted(root.rglob("*"))]


@every_system
def test_a_link_in_the_place_of_anything_is_not_followed(name: str, tmp_path: Path) -> None:
    """Whichever file or directory is a link out of the cache, its target is neither changed nor removed."""
    example = EXAMPLES[name]
    example.make(tmp_path / "cache", 1)
    for number, place in enumerate(_places(tmp_path / "cache")):
        if place == example.place:  # the place itself may be a link, as that of any cache
            continue
        root, outside = tmp_path / f"cache-{number}", tmp_path / f"outside-{number}"
        example.make(root, 1)
        shutil.move(root / place, outside)
        (root / place).symlink_to(outside)
        before = _lies(tmp_path)
        cache = open_example(name, root / example.place)
        with suppress(CacheUnusableError):
            _asked(cache)
        assert _lies(tmp_path) == before
        try:
            told = [f"{finding.kind}: {finding.detail}" for finding in _findings(cache)]
            _repaired(cache)
        except CacheUnusableError as error:
            told = [str(error)]
        assert told or not example.alone or name == OWN, place
        with suppress(CacheUnusableError):
            _emptied(cache)
        assert outside.exists() or outside.is_symlink(), place
        held = {path: one for path, one in before.items() if path.startswith(outside.name)}
        assert {
            path: one for path, one in _lies(tmp_path).items() if path.startswith(outside.name)
        } == held, place


@every_other
@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK])
def test_what_is_no_file_in_the_place_of_one_is_told(name: str, kind: int, tmp_path: Path) -> None:
    """A pipe or a socket blocks no reader, and a verification that failed before still fails."""
    example = EXAMPLES[name]
    example.make(tmp_path / "cache", 1)
    for number, place in enumerate(_places(tmp_path / "cache")):
        root = tmp_path / f"cache-{number}"
        example.make(root, 1)
        if not (root / place).is_file():
            continue
        (root / place).unlink()
        os.mknod(root / place, kind | 0o600)
        with suppress(CacheUnusableError):
            cache = open_example(name, root / example.place)
            _asked(cache)
            unread = not example.alone or place.endswith("source.cl")  # PyOpenCL writes it and never reads it
            assert _findings(cache) or unread, place
            _repaired(cache)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(
    "name", [name for name, one in EXAMPLES.items() if name not in _OWN_WAY and not one.opaque]
)
def test_a_folder_in_the_place_of_a_file_is_told_and_moved_away(
    name: str, held: bool, tmp_path: Path
) -> None:
    """The owner fails or compiles at every start; a user's files in the directory are kept."""
    example = EXAMPLES[name]
    for number, place in enumerate(_places(example.make(tmp_path / "cache", 1))):
        root = tmp_path / f"cache-{number}"
        example.make(root, 1)
        if not (root / place).is_file() or "/artifact_" in place:  # which vLLM makes in both forms
            continue
        (root / place).unlink()
        (root / place).mkdir()
        if held:
            _lay(root / place / "diary.txt")
        told = [one for one in _repaired(open_example(name, root)) if "in place of a file" in one.detail]
        assert [(one.kind, one.repaired) for one in told] == [("corrupt", True)], place
        assert not (root / place).exists() and len(list(root.rglob("diary.txt"))) == held
        assert not any("in place of" in one.detail for one in _findings(open_example(name, root)))


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("triton", f"{'A' * 52}/tmp.pid_{{}}_00000000-0000-0000-0000-000000000000/add.cubin"),
        ("numba", f"sources_{'0' * 40}/module.f-1.py311.1.nbc.tmp.0123456789abcdef"),
        ("warp", "1.19.0/wp_physics_5feceb6_p{}_t140000/wp_physics_5feceb6.cpp"),
        ("mesa", f"ab/{'0' * 62}.tmp"),
        ("intel-neo", "a/b/cl_cache.aB3dE6"),
        ("amd-comgr", "amdgpu-compiler-012def.tmp.o"),
        ("vllm", f"torch_compile_cache/torch_aot_compile/{'ab' * 32}/rank_0_0/model.{{}}.tmp"),
    ],
)
def test_what_a_killed_writer_left_goes_once_it_is_old_and_its_process_is_gone(
    name: str, left: str, tmp_path: Path
) -> None:
    """By its name it is the owner's, whatever was written by then; a running process may still write it."""
    root = EXAMPLES[name].make(tmp_path / "cache", 1)
    paths = {pid: root / left.format(pid) for pid in (_NO_PROCESS, os.getpid())}
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x7fELF of which the rest is missing")
    age(root)
    (gone,) = _repaired(open_example(name, root))
    assert gone.kind == "leftover" and gone.repaired and not paths[_NO_PROCESS].exists()
    assert paths[os.getpid()].exists() is ("{}" in left)
    assert not _findings(open_example(name, root))


@every_system
def test_strangers_beside_entries_are_kept_and_named(name: str, tmp_path: Path) -> None:
    """In every directory of the cache they stay, whatever is removed or fixed, and one of them is named."""
    example, _, _ = _made(name, tmp_path)
    root = tmp_path / "cache"
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        _lay(folder / "diary.txt")
    cache = open_example(name, root / example.place)
    told = [f"{one.entry} {one.detail}" for one in _findings(cache)]
    told += [entry.stays for entry in cache.scan()]
    told += [kept.reason for kept in _emptied(cache)]
    _repaired(cache)
    assert all((folder / "diary.txt").read_bytes() for folder in folders)
    assert any("diary.txt" in one for one in told) or not example.alone, told


# Explanations.


@every_other
def test_an_unknown_field_is_refused_with_those_there_are(name: str, tmp_path: Path) -> None:
    """The error lists the valid fields."""
    _, cache, _ = _made(name, tmp_path)
    with pytest.raises(UsageError, match=r"no field '?colour") as refused:
        list(cache.explain({"colour": (b"red",)}))
    assert all(field in str(refused.value) for field in load_system(name).wanted)


def _all_asked(name: str, environ: Mapping[str, str]) -> list[tuple[str, list[str], list[str]]]:
    """Every place that an environment names, with its problems and the keys of its entries."""
    told = []
    for location in load_system(name).locations(environ):
        assert location.cache == name and location.decided_by
        with suppress(CacheUnusableError):
            keys = [entry.key for entry in _asked(load_system(name).open(location))]
            told.append((location.root, list(location.problems), keys))
    return told


def _environs(name: str, place: str) -> list[dict[str, str]]:
    """Environments in which one variable alone leads a system's programs to a place."""
    isolation = load_system(name).isolation(Path("/private")).environment
    variables = (variable for variable, value in isolation if value.startswith("/private"))
    return [{variable: place} for variable in dict.fromkeys(("HOME", "XDG_CACHE_HOME", *variables))]


@every_other
@pytest.mark.parametrize("gone", [False, True])
def test_an_environment_without_a_home_raises_nothing(
    name: str, gone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a place with its problems, or none; also where a variable is empty or names no whole path, and
    where the current directory is gone."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    if gone:
        (tmp_path / "here").rmdir()
    placed = [{"HOME": "me", **environ} for environ in _environs(name, str(tmp_path))]
    for environ in ({}, {"PATH": "/usr/bin"}, *_environs(name, ""), *_environs(name, "me"), *placed):
        _all_asked(name, environ)
    assert load_system(name).nowhere() and load_system(name).title


@needs_root
@every_other
def test_an_environment_that_names_what_may_not_be_entered(name: str, tmp_path: Path) -> None:
    """The places it names are reported with their problems, whether they exist or not."""
    tmp_path.chmod(0o700)
    environs = _environs(name, f"{tmp_path}/place")
    told = json.loads(as_nobody(lambda: json.dumps([_all_asked(name, environ) for environ in environs])))
    there = [one for places in told for one in places if one[0].startswith(str(tmp_path))]
    assert there or not load_system(name).isolation(tmp_path).environment
    for _, problems, keys in there:
        assert any("cannot be looked at" in one or "cannot be read" in one for one in problems), problems
        assert not keys


@every_other
def test_isolation_leads_programs_to_one_cache_below_a_folder(name: str, tmp_path: Path) -> None:
    """Programs' entries there are found again, and in use; a system without isolation says why."""
    system = load_system(name)
    isolation = system.isolation(tmp_path)
    environ = {"HOME": "/nowhere", **dict(isolation.environment)}
    if not isolation.environment:
        led = [one for one in system.locations(environ) if Path(one.root).is_relative_to(tmp_path)]
        assert isolation.lacking and not led
        return
    (location,) = system.locations(environ)
    EXAMPLES[name].add(Path(location.root), 0)
    (location,) = system.locations(environ)
    assert location.enabled and Path(location.root).is_relative_to(tmp_path)
    assert len(list(system.open(location).scan())) == 1


@every_other
def test_a_cache_is_recognised_and_others_are_not(name: str, tmp_path: Path) -> None:
    """Its example is; nothing, a file of something else, a pipe, a link to nowhere, a name that no file can
    have are not."""
    assert load_system(name).recognises(EXAMPLES[name].make(tmp_path / "cache"))
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    _lay(tmp_path / "file")
    places = [tmp_path / one for one in ("none", "file", "pipe", "link", "file/below", "a\0b")]
    assert not any(load_system(name).recognises(place) for place in places)
