"""Requests that missed: kept whole and once, bounded, private, and never a failure."""

import stat
from pathlib import Path

import pytest

from gpucache.answers.lookup import Noted
from gpucache.keys import digest
from gpucache.model import BuildRequest, CacheKey, Checks, Language, Program, Target
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import MissedRequest
from gpucache.store.missed import AGAIN_NS, FILE_CAP, REQUEST_BYTES_CAP

_REQUEST = BuildRequest(
    program=Program("show", Language.OPENCL_C, b"// Gr\xf6\xdfe\nkernel void show() {}"),
    target=Target("opencl", "pocl/cpu"),
    options=("-DA=1", "-DT=unsigned int"),
    include_dirs=("/in clude",),
    local_sizes=((64,),),
    headers=("/a.h",),
    cwd="/work",
    checks=Checks.ASYNC,
)


def _missed(number: int = 0, **changes: object) -> MissedRequest:
    request = _REQUEST._replace(**changes)  # type: ignore[arg-type] # any field
    key = CacheKey(digest(str(number).encode()))
    return MissedRequest(key, number + 1, "solver.py", request, (("POCL_X", "1"),))


def test_a_request_is_kept_whole(store: DirectoryStore) -> None:
    """Source, options, directories, sizes and variables come back unchanged, whatever bytes a source has."""
    assert store.missed.note(_missed()) is Noted.NEW
    assert store.missed.all() == [_missed()]


def test_a_request_is_noted_once(store: DirectoryStore) -> None:
    """The same request is not new; another local size is, and joins the known ones."""
    store.missed.note(_missed())
    assert store.missed.note(_missed(local_sizes=())) is Noted.KNOWN
    assert store.missed.note(_missed(local_sizes=((16, 16),))) is Noted.NEW
    assert [one.request.local_sizes for one in store.missed.all()] == [((64,), (16, 16))]


def test_a_request_whose_entry_was_rejected_is_noted_as_such(store: DirectoryStore) -> None:
    """That is new, once, for a request that was noted before, and comes back with it."""
    store.missed.note(_missed())
    rejected = _missed()._replace(rejected=True)
    assert [store.missed.note(rejected), store.missed.note(rejected)] == [Noted.NEW, Noted.KNOWN]
    assert store.missed.all() == [rejected]


def test_a_request_is_news_again_after_an_hour(store: DirectoryStore) -> None:
    """A request that was not built since is noted anew, with all known sizes, as its build may be lost."""
    later = _missed(local_sizes=())._replace(when_ns=_missed().when_ns + AGAIN_NS)
    assert [store.missed.note(one) for one in (_missed(), later, later)] == [
        Noted.NEW,
        Noted.NEW,
        Noted.KNOWN,
    ]
    assert [one.request.local_sizes for one in store.missed.all()] == [((64,),)]


def test_what_was_built_is_forgotten(store: DirectoryStore) -> None:
    """A forgotten request is gone, and forgetting it again is not an error."""
    store.missed.note(_missed())
    for _ in range(2):
        store.missed.forget(_missed().key)
    assert store.missed.all() == []


def test_requests_are_bounded(store: DirectoryStore, tmp_path: Path) -> None:
    """There are never more than the maximum, and one that is too large is not kept."""
    for number in range(FILE_CAP + 3):
        store.missed.note(_missed(number))
    assert len(list((tmp_path / "cache/v1/missed").iterdir())) == FILE_CAP
    large = Program("show", Language.OPENCL_C, b"x" * REQUEST_BYTES_CAP)
    assert store.missed.note(_missed(-1, program=large)) is Noted.LOST


def test_requests_are_private(store: DirectoryStore, tmp_path: Path) -> None:
    """Sources are readable by their owner alone."""
    store.missed.note(_missed())
    (path,) = (tmp_path / "cache/v1/missed").iterdir()
    assert [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)] == [0o600, 0o700]


def test_nothing_is_noted_where_nothing_may_be_written(tmp_path: Path) -> None:
    """A read-only cache, or a place without directories, loses only the request."""
    (tmp_path / "file").write_bytes(b"")
    stores = DirectoryStore(tmp_path / "no", writable=False), DirectoryStore(tmp_path / "file", writable=True)
    assert [store.missed.note(_missed()) for store in stores] == [Noted.LOST, Noted.LOST]
    assert [store.missed.all() for store in stores] == [[], []]
    assert not (tmp_path / "no").exists()


def test_a_request_for_no_target_is_passed_by(store: DirectoryStore, tmp_path: Path) -> None:
    """A request whose target cannot be parsed is ignored, and replaced by its program's next one."""
    store.missed.note(_missed())
    (path,) = (tmp_path / "cache/v1/missed").iterdir()
    path.write_text(path.read_text(encoding="ascii").replace("opencl:pocl/cpu", "pocl"), encoding="ascii")
    assert store.missed.all() == []
    assert store.missed.note(_missed()) is Noted.NEW
    assert store.missed.all() == [_missed()]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"local_sizes": 1}', "[" * 10_000])
def test_a_file_that_is_no_request_is_passed_by(store: DirectoryStore, tmp_path: Path, text: str) -> None:
    """A file that cannot be parsed as a request is ignored, and so is a link to one."""
    store.missed.note(_missed())
    folder = tmp_path / "cache/v1/missed"
    (path,) = folder.iterdir()
    (folder / f"{digest(b'other')}.json").write_text(text, encoding="ascii")
    (folder / f"{digest(b'link')}.json").symlink_to(path)
    assert store.missed.all() == [_missed()]


def test_one_process_builds_what_missed(store: DirectoryStore) -> None:
    """While one process builds, another is refused; afterwards it is free again."""
    with store.build_missed() as first, store.build_missed() as second:
        assert (first, second) == (True, False)
    with store.build_missed() as third:
        assert third
