"""The driver's cache as one opaque entry: what is reported about it, and how it is emptied."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind
from gpucache.answers.evict import Kept, Removal
from gpucache.answers.lookup import Verdict
from gpucache.caches.cuda_driver import STRANGERS_COUNTED, clear, survey
from gpucache.caches.files import DEEPEST
from gpucache.engine.evict import Limits, plan, run_evict
from tests.caches.cuda_driver.build import NOW, OLD, SECOND_NS, binary, file, opened, told, tree
from tests.caches.opened import HOUR_NS, kinds, only

_MIB = 1 << 20
_PART = st.sampled_from(["a", "F", "index", "\udcff", "tmp1", "0" * 14, "c" * 14])


def test_the_whole_cache_is_one_entry(tmp_path: Path) -> None:
    """Its size is what it takes on disk, its times those of the oldest and the newest file."""
    tree(tmp_path / "jit")
    newest = binary(tmp_path / "jit", 99, 5000, OLD + HOUR_NS)
    entry = only(opened(tmp_path / "jit"))
    files = [path for path in (tmp_path / "jit").rglob("*") if path.is_file()]
    assert entry.size_bytes == sum(path.stat().st_blocks * 512 for path in files)
    assert (entry.created_ns, entry.last_used_ns) == (OLD, newest.stat().st_mtime_ns)
    assert dict(entry.fields) == {
        "files": "5",
        "bytes": str(5648 + 3 * 100 + 5000),
        "index": "present",
        "files of unusual names": "0",
    }


def test_the_key_stays_the_same(tmp_path: Path) -> None:
    """Whatever is in the cache; its beginning finds the entry, and another does not."""
    one, other = only(opened(tree(tmp_path / "a"))), only(opened(tree(tmp_path / "b", binaries=9)))
    assert one.key == other.key and len(one.key) == 64
    cache = opened(tmp_path / "a")
    assert cache.find(one.key[:4]) == [one] and not cache.find("0" * 8)


@pytest.mark.parametrize("folders", [(), ("jit",), ("jit/a/b",)])
def test_without_files_there_is_no_entry(folders: tuple[str, ...], tmp_path: Path) -> None:
    """Nor is there anything to say."""
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    cache = opened(tmp_path / "jit", limit=100)
    assert not list(cache.scan()) and not told(cache)


def test_a_sound_tree_has_no_finding_and_a_note(tmp_path: Path) -> None:
    """The format is opaque, and verify says so."""
    cache = opened(tree(tmp_path / "jit"), limit=_MIB)
    checked = cache.check(only(cache))
    assert not checked.findings and "not documented" in checked.notes[0]
    assert not told(cache) and not only(cache).damage


@pytest.mark.parametrize(
    ("root", "below", "wrong"), [(0o700, 0o755, False), (0o755, 0o700, False), (0o755, 0o755, True)]
)
def test_modes_count_where_others_get_there(root: int, below: int, wrong: bool, tmp_path: Path) -> None:
    """Files of a umask of 002 behind a directory that is one's own are no danger."""
    tree(tmp_path / "jit")
    binary(tmp_path / "jit", 1).chmod(0o664)
    for folder in filter(Path.is_dir, [*(tmp_path / "jit").rglob("*")]):
        folder.chmod(below)
    (tmp_path / "jit").chmod(root)
    cache = opened(tmp_path / "jit")
    assert kinds(cache.check(only(cache))) == [FindingKind.UNTRUSTED] * wrong
    assert bool(only(cache).damage) is wrong


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="giving files away needs root")
def test_a_file_of_another_user_is_untrusted_wherever_it_lies(tmp_path: Path) -> None:
    """The driver loads what it holds."""
    tree(tmp_path / "jit")
    os.chown(binary(tmp_path / "jit", 1), 12345, 12345)
    cache = opened(tmp_path / "jit")
    [finding] = cache.check(only(cache)).findings
    assert finding.kind is FindingKind.UNTRUSTED and "12345" in finding.detail


def test_links_are_told_and_not_followed(tmp_path: Path) -> None:
    """Neither to a file nor to a directory; what they name is not counted."""
    elsewhere = tree(tmp_path / "elsewhere")
    tree(tmp_path / "jit", binaries=1)
    (tmp_path / "jit" / "A").symlink_to(elsewhere)
    (tmp_path / "jit" / "0" / "link").symlink_to(elsewhere / "index")
    cache = opened(tmp_path / "jit")
    [finding] = cache.check(only(cache)).findings
    assert finding.kind is FindingKind.UNTRUSTED and "and 1 more" in finding.detail
    assert dict(only(cache).fields)["files"] == "2"


@pytest.mark.parametrize(("used", "full"), [(89, False), (91, True)])
def test_a_nearly_full_cache_is_told(used: int, full: bool, tmp_path: Path) -> None:
    """With the variable that gives it room."""
    file(tmp_path / "jit", "index", 0)
    for number in range(10):
        binary(tmp_path / "jit", number, used * 100)
    detail = told(opened(tmp_path / "jit", limit=100_000)).get(FindingKind.STALE, "")
    assert ("raise CUDA_CACHE_MAXSIZE" in detail) is bool(detail) is full


def test_at_the_highest_limit_another_remedy_is_told(tmp_path: Path) -> None:
    """The driver allows no more."""
    tree(tmp_path / "jit", binaries=1)
    with binary(tmp_path / "jit", 0).open("r+b") as large:
        large.truncate(4 << 30)
    detail = told(opened(tmp_path / "jit", limit=4 << 30))[FindingKind.STALE]
    assert "CUDA_CACHE_PATH" in detail and "raise" not in detail


def test_without_a_known_limit_none_is_held_against_it(tmp_path: Path) -> None:
    """As for a directory that --cache named."""
    assert not told(opened(tree(tmp_path / "jit")))


@pytest.mark.parametrize(("gone", "words"), [("index", "no file 'index'"), ("0", "no binaries")])
def test_half_a_cache_is_told(gone: str, words: str, tmp_path: Path) -> None:
    """Binaries without an index, and an index without binaries."""
    tree(tmp_path / "jit", binaries=1)
    path = tmp_path / "jit" / gone
    path.rename(tmp_path / "gone")
    assert words in told(opened(tmp_path / "jit"))[FindingKind.ORPHAN]


def test_folders_of_any_depth_end_the_walk(tmp_path: Path) -> None:
    """They are reported, and no more of them is looked at."""
    tree(tmp_path / "jit")
    file(tmp_path / "jit", "/".join("a" * (DEEPEST + 40)))
    cache = opened(tmp_path / "jit")
    assert dict(only(cache).fields)["files"] == "4" and cache.unread()


@pytest.mark.parametrize(("enabled", "verdict"), [(True, Verdict.OPAQUE_KEY), (False, Verdict.NOT_CONSULTED)])
def test_no_key_is_explained(enabled: bool, verdict: Verdict, tmp_path: Path) -> None:
    """They are opaque, or not asked for."""
    [reach] = opened(tmp_path, enabled=enabled).explain({})
    assert reach.verdict is verdict and not reach.hit


def _home(root: Path) -> None:
    file(root, "thesis.tex")
    file(root, "ab/cd/letter.txt")


def _home_with_an_index(root: Path) -> None:
    file(root, "index")
    file(root, "photos/1.jpg")


def _remove(root: Path, clock: int = NOW) -> Kept | None:
    cache = opened(root, clock=clock)
    return cache.remove(only(cache), "--all")


def test_only_all_empties_it(tmp_path: Path) -> None:
    """The driver keeps to a limit of its own; the plan knows, so that a dry run says what a run does."""
    entry = only(opened(tree(tmp_path / "jit")))
    assert Removal(entry, "--all").refused is None
    kept = Removal(entry, "over 1.0 MiB").refused
    assert kept is not None and "CUDA_CACHE_MAXSIZE" in kept.reason


def test_an_eviction_by_another_rule_leaves_it(tmp_path: Path) -> None:
    """A run of evict that chose it for its age does not even try to remove it."""
    cache = opened(tree(tmp_path / "jit"))
    planned = plan(cache.entries(), Limits(older_than_ns=1), NOW)
    (outcome,) = run_evict(cache, planned)
    assert outcome.stays
    assert list(cache.scan())


def test_all_of_it_is_emptied_and_the_folder_stays(tmp_path: Path) -> None:
    """Binaries, the index, and what a program that was stopped left half made."""
    tree(tmp_path / "jit", binaries=40)
    file(tmp_path / "jit", "a/b/.nfs0001")
    assert _remove(tmp_path / "jit") is None
    assert not list((tmp_path / "jit").iterdir())
    assert opened(tmp_path / "jit").finish_removals() == ()


@pytest.mark.parametrize(
    "stranger", ["thesis.tex", ".git/HEAD", "a/b/results.csv", "a/b/c/00000000000001", "notes.tmp", "index~"]
)
def test_a_cache_among_the_files_of_others_is_not_emptied(stranger: str, tmp_path: Path) -> None:
    """The first of them is named, before anything was removed."""
    tree(tmp_path / "jit")
    file(tmp_path / "jit", stranger)
    entry = only(opened(tmp_path / "jit"))
    kept = _remove(tmp_path / "jit")
    assert kept is not None and stranger in kept.reason and kept.reason == entry.stays
    assert len([path for path in (tmp_path / "jit").rglob("*") if path.is_file()]) == 5


@pytest.mark.parametrize("paths", [("index",), ("12/24/20241224103000", "12/25/20241225103000", "index")])
def test_what_others_have_as_well_shows_nothing(paths: tuple[str, ...], tmp_path: Path) -> None:
    """Photos by month, day and time are as a driver's files do, and many programs call a file an index."""
    for path in paths:
        file(tmp_path / "jit", path)
    entry = only(opened(tmp_path / "jit"))
    kept = _remove(tmp_path / "jit")
    assert kept is not None and "as only the driver names" in kept.reason and kept.reason == entry.stays
    assert all((tmp_path / "jit" / path).exists() for path in paths)


def test_a_link_is_a_stranger(tmp_path: Path) -> None:
    """The driver makes none, so a user did."""
    tree(tmp_path / "jit")
    (tmp_path / "jit" / "home").symlink_to(tmp_path)
    kept = _remove(tmp_path / "jit")
    assert kept is not None and "'home'" in kept.reason


def test_what_others_put_there_while_it_is_emptied_stays(tmp_path: Path) -> None:
    """Files go by their names alone, whatever was seen before."""
    tree(tmp_path / "jit")
    thesis = file(tmp_path / "jit", "0/0/thesis.tex")
    assert not clear(tmp_path / "jit", NOW).count
    assert [path for path in (tmp_path / "jit").rglob("*") if path.is_file()] == [thesis]


@pytest.mark.parametrize(("age", "kept"), [(59, True), (-59, True), (61, False), (-7200, False)])
def test_a_cache_in_use_stays(age: int, kept: bool, tmp_path: Path) -> None:
    """It changed within the last minute; a file of a far future date only has a wrong one."""
    tree(tmp_path / "jit")
    path = binary(tmp_path / "jit", 7, 100, NOW - age * SECOND_NS)
    answer = _remove(tmp_path / "jit")
    assert (answer is not None and "a program is using it" in answer.reason) is kept
    assert path.exists() is kept


def _add(root: Path) -> None:
    binary(root, 77)


def _change(root: Path) -> None:
    file(root, "index", 9)


def test_what_is_written_while_it_is_emptied_stays(tmp_path: Path) -> None:
    """It is of a program that started meanwhile."""
    tree(tmp_path / "jit")
    young = binary(tmp_path / "jit", 2, 100, NOW + SECOND_NS)
    assert not clear(tmp_path / "jit", NOW).count
    assert [path for path in (tmp_path / "jit").rglob("*") if path.is_file()] == [young]


@given(paths=st.lists(st.tuples(st.lists(_PART, min_size=1, max_size=4), st.integers(0, 3)), max_size=8))
def test_any_tree_is_told_and_emptied(paths: list[tuple[list[str], int]]) -> None:
    """Every file is counted once, and none of the driver's is left where all of them are."""
    with TemporaryDirectory() as folder:
        root = Path(folder, "jit")
        root.mkdir()
        for parts, size in paths:
            # A name may be that of a directory already, or a directory be wanted where a file is.
            blocked = any(root.joinpath(*parts[:end]).is_file() for end in range(1, len(parts)))
            if not blocked and not root.joinpath(*parts).is_dir():
                file(root, "/".join(parts), size)
        files = sum(path.is_file() for path in root.rglob("*"))
        cache = opened(root, limit=2)
        told(cache)
        for entry in cache.scan():
            assert dict(entry.fields)["files"] == str(files)
            cache.check(entry)
            found = survey(root)
            kept = found.strangers.count > 0 or found.foreign or not found.telling
            assert (cache.remove(entry, "--all") is None) is not kept
            assert any(path.is_file() for path in root.rglob("*")) is kept


def test_a_large_tree_of_others_is_not_walked_to_its_end(tmp_path: Path) -> None:
    """A thousand strangers are enough to leave it alone; a home or a whole machine has millions."""
    for number in range(STRANGERS_COUNTED + 500):
        (tmp_path / f"photo-{number}").touch()
    found = survey(tmp_path)
    assert found.strangers.count == found.files == STRANGERS_COUNTED
