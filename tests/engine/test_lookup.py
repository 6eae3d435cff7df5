"""The heart: where a program is looked up, which part of a build is kept, and what must never fail."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.lookup import Built, Hit, Miss, Verdict
from gpucache.engine.lookup import LOG_LIMIT, build, find, get_or_build, look_up
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import NoEntry, Stores
from gpucache.errors import CacheMissError, CacheUnusableError, CompileError
from gpucache.keys import cache_key, digest
from gpucache.model import Artifact, ArtifactKind, CacheKey, Entry
from gpucache.store.directory import DirectoryStore
from gpucache.store.memory import MemoryStore
from tests.patience import PATIENCE_S, tick
from tests.store.conftest import left

Ready = Callable[..., Prepared]
Tree = Callable[..., Path]


def _built(stores: Stores, prepared: Prepared, compile_: Callable[[], Artifact]) -> Built:
    outcome = get_or_build(stores, prepared, compile_)
    assert isinstance(outcome, Built)
    return outcome


def _files(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


def test_a_program_is_compiled_once(stores: Stores, ready: Ready, compiler: Any, tree: Tree) -> None:
    """The first lookup compiles and publishes; the second gives the payload back, with its lowered names."""
    prepared, compile_ = ready(include_dirs=[tree("include")]), compiler()
    built = _built(stores, prepared, compile_)
    hit = get_or_build(stores, prepared, compile_)
    assert isinstance(hit, Hit)
    assert (hit.payload, dict(hit.head.lowered_names)) == (compile_.payload, {"show": "_Z4show"})
    assert (built.miss.verdict, built.key, hit.key) == (Verdict.NEVER_BUILT, prepared.key, prepared.key)
    assert compile_.asked == 1


def test_an_entry_says_what_it_is(
    store: DirectoryStore, stores: Stores, ready: Ready, compiler: Any, tree: Tree, tmp_path: Path
) -> None:
    """Head and detail contain program, options, toolchain, the fields of the key, and its origin."""
    include = tree("include")
    prepared = ready(options=["-DA"], include_dirs=[include], path=tmp_path / "show.cu")
    key = _built(stores, prepared, compiler()).key
    assert key is not None
    hit, detail = find(stores, prepared), store.detail(key)
    assert isinstance(hit, Hit)
    assert detail is not None
    assert (hit.head.program, hit.head.target, hit.head.options) == ("show", "cuda:compute_90", ("-DA=1",))
    assert hit.head.payload_sha256 == digest(compiler().payload)
    assert hit.head.toolchain == (("device name", "a device"), ("driver version", "1.0"))
    assert cache_key(detail.key_fields) == key
    assert detail.provenance == (
        ("source file", str(tmp_path / "show.cu")),
        ("include directory", str(include)),
        ("build option", "-DA"),
    )


def test_a_long_log_is_cut(store: DirectoryStore, stores: Stores, ready: Ready, compiler: Any) -> None:
    """64 KiB of a build log are kept."""
    log = "w" * (LOG_LIMIT + 1)
    built = _built(stores, ready(), lambda: compiler()()._replace(build_log=log))
    assert built.key is not None
    detail = store.detail(built.key)
    assert detail is not None
    assert detail.build_log == log[:LOG_LIMIT]


def test_stores_are_asked_nearest_first(tmp_path: Path, ready: Ready, compiler: Any) -> None:
    """Memory comes first, then the user's root, then system roots; an entry from disk is kept in memory."""
    prepared = ready()
    roots = [tmp_path / name for name in ("user", "system")]
    for root in roots:
        _built(Stores(user=DirectoryStore(root, writable=True)), prepared, compiler(root.name))
    user, system = (DirectoryStore(root, writable=False) for root in roots)
    stores = Stores(memory=MemoryStore(1 << 20), user=user, systems=(system,))
    answers = [find(stores, prepared), find(stores, prepared), find(Stores(systems=(system,)), prepared)]
    found = [(hit.payload, hit.store) for hit in answers if isinstance(hit, Hit)]
    user_s, system_s = (compiler(root.name).payload for root in roots)
    assert found == [(user_s, str(roots[0])), (user_s, "memory"), (system_s, str(roots[1]))]


def test_a_hit_in_a_system_root_writes_nothing(tmp_path: Path, ready: Ready, compiler: Any) -> None:
    """An entry that an administrator warmed is used in place."""
    prepared = ready()
    _built(Stores(user=DirectoryStore(tmp_path / "system", writable=True)), prepared, compiler())
    before = _files(tmp_path)
    user = DirectoryStore(tmp_path / "user", writable=True)
    system = DirectoryStore(tmp_path / "system", writable=False)
    assert isinstance(get_or_build(Stores(user=user, systems=(system,)), prepared, compiler()), Hit)
    assert _files(tmp_path) == before


def test_a_header_edited_during_the_compile_is_not_kept(
    stores: Stores, ready: Ready, compiler: Any, tree: Tree, tmp_path: Path
) -> None:
    """The caller gets the artifact, but nobody knows of which header it is, so it is not published."""
    include = tree("include")
    compile_ = compiler(meanwhile=lambda: tree("include", value="8"))
    built = _built(stores, ready(include_dirs=[include]), compile_)
    assert (built.artifact.payload, built.key) == (compiler().payload, None)
    assert built.note == "the header value.h changed while it was compiled, so it was not kept"
    assert not list(tmp_path.rglob("*.gpc"))
    for value in ("7", "8"):
        tree("include", value=value)
        assert isinstance(find(stores, ready(include_dirs=[include])), NoEntry)


@pytest.mark.parametrize("how", ["written in place", "another file", "shadowed"])
def test_a_header_that_is_back_after_the_compile_was_another_meanwhile(
    stores: Stores, ready: Ready, compiler: Any, tree: Tree, tmp_path: Path, how: str
) -> None:
    """A header that was edited and put back, or shadowed for a while, may have been compiled in between."""
    first, include = tree("first", file="other.h"), tree("include")

    def change_and_put_back() -> None:
        tick(tmp_path)
        if how == "shadowed":
            tree("first", value="8")
            (first / "value.h").unlink()
        elif how == "another file":
            tree("elsewhere", value="8")
            (tmp_path / "elsewhere/value.h").replace(include / "value.h")
            tree("elsewhere")
            (tmp_path / "elsewhere/value.h").replace(include / "value.h")
        else:
            before = (include / "value.h").stat()
            while (include / "value.h").stat().st_ctime_ns == before.st_ctime_ns:
                tree("include", value="8")
                tree("include")
            os.utime(include / "value.h", ns=(before.st_atime_ns, before.st_mtime_ns))

    prepared = ready(include_dirs=[first, include])
    built = _built(stores, prepared, compiler(meanwhile=change_and_put_back))
    seen = f"the directory {first}/ changed" if how == "shadowed" else f"the header {include}/value.h changed"
    assert built.note == f"{seen} while it was compiled, so it was not kept"
    assert isinstance(find(stores, prepared), NoEntry)


@pytest.mark.parametrize(
    "how", ["linked", "link behind a link", "parent of a link", "moved", "shadowed below"]
)
def test_a_folder_that_is_back_after_the_compile_was_another_meanwhile(
    stores: Stores, ready: Ready, compiler: Any, tree: Tree, tmp_path: Path, how: str
) -> None:
    """A directory above the headers that led elsewhere for a while may be where they were read."""
    place, first = tmp_path / "place", tmp_path / "first"
    for version in ("one", "two"):
        tree(f"{version}/include/sub")
    (first / "sub").mkdir(parents=True)
    if how.startswith(("moved", "shadowed")):
        (tmp_path / "one").rename(place)
    else:
        place.symlink_to("one")
    (tmp_path / "also").symlink_to("place")
    start = {"link behind a link": tmp_path / "also", "parent of a link": place / "include/../.." / "one"}
    watched = first / "sub" if how == "shadowed below" else place

    def leads_elsewhere() -> None:
        if how == "shadowed below":
            (first / "sub/value.h").touch()
            (first / "sub/value.h").unlink()
            return
        place.rename(tmp_path / "aside")
        place.symlink_to("two")
        place.unlink()
        (tmp_path / "aside").rename(place)

    def meanwhile() -> None:
        before = watched.lstat().st_ctime_ns
        while watched.lstat().st_ctime_ns == before:
            leads_elsewhere()

    prepared = ready("#include <sub/value.h>\n", include_dirs=[first, start.get(how, place) / "include"])
    built = _built(stores, prepared, compiler(meanwhile=meanwhile))
    assert built.note == f"the directory {watched}/ changed while it was compiled, so it was not kept"
    assert isinstance(find(stores, prepared), NoEntry)


@pytest.mark.parametrize("below", ["", "cache", "deep/cache"])
def test_a_root_below_the_headers_keeps_what_includes_through_a_macro(
    ready: Ready, compiler: Any, tree: Tree, below: str
) -> None:
    """The cache's own files, written there during a compile, are not headers of any build."""
    include = tree("include")
    stores = Stores(user=DirectoryStore(include / below, writable=True))
    for number in range(3):
        source = b'#define VALUE "value.h"\n#include VALUE\n// %d' % number
        prepared = ready(source=source, include_dirs=[include])
        built = _built(stores, prepared, compiler())
        assert (built.note, built.key) == ("", prepared.key)
        assert isinstance(find(stores, ready(source=source, include_dirs=[include])), Hit)


def test_an_artifact_that_holds_a_path_is_for_its_place_alone(
    stores: Stores, ready: Ready, compiler: Any, tree: Tree
) -> None:
    """A payload with an include directory in it is published as located: a hit there, a miss elsewhere."""
    first, second = tree("first"), tree("second")
    here, there = ready(include_dirs=[first]), ready(include_dirs=[second])
    built = _built(stores, here, compiler(f"compiled in {first}"))
    assert built.key == here.located_key
    hit, miss = find(stores, here), look_up(stores, there)
    assert isinstance(hit, Hit)
    assert hit.head.located
    assert isinstance(miss, Miss)
    assert miss.detail.startswith("it contains paths and was built in other directories")


@pytest.mark.parametrize("payload", [b"", b"garbage", b".version 8.0\n.target sm_80\n"])
def test_what_is_no_artifact_is_not_kept(
    stores: Stores, ready: Ready, compiler: Any, tmp_path: Path, payload: bytes
) -> None:
    """A result that is empty, of unknown format or for another target is not published."""
    built = _built(stores, ready(), lambda: compiler()()._replace(payload=payload))
    assert (built.artifact.payload, built.key) == (payload, None)
    assert built.note.startswith("the compiler's result is damaged, so it was not kept: ")
    assert not list(tmp_path.rglob("*.gpc"))


def test_what_its_compiler_refuses_is_given_and_not_kept(stores: Stores, ready: Ready, compiler: Any) -> None:
    """An artifact may be for its own process only; the next one is built and kept."""
    built = _built(stores, ready(), lambda: compiler()()._replace(refusal="it holds a directory"))
    assert (built.key, built.note) == (None, "it holds a directory, so it was not kept")
    assert built.artifact.payload == compiler().payload
    assert _built(stores, ready(), compiler()).key is not None


def test_a_required_hit_raises(stores: Stores, ready: Ready, compiler: Any) -> None:
    """If a hit is required, a miss names program, target and verdict, and nothing is compiled."""
    compile_ = compiler()
    with pytest.raises(
        CacheMissError, match=r"^solver for cuda:compute_90 is not .*: never-built: nothing was ever"
    ):
        get_or_build(stores._replace(require=True), ready(name="solver"), compile_)
    assert compile_.asked == 0


def test_a_disabled_cache_is_not_consulted(
    stores: Stores, ready: Ready, compiler: Any, tmp_path: Path
) -> None:
    """A disabled cache neither serves nor keeps, even if it has the entry."""
    prepared = ready()
    _built(stores, prepared, compiler())
    before = _files(tmp_path)
    built = _built(stores._replace(disabled=True), prepared, compiler())
    assert (built.miss.verdict, built.key) == (Verdict.NOT_CONSULTED, None)
    assert built.note == "GPUCACHE_DISABLE is set, so no cache was queried"
    assert _files(tmp_path) == before


def test_what_cannot_be_keyed_is_compiled_and_not_kept(
    stores: Stores, ready: Ready, compiler: Any, tmp_path: Path
) -> None:
    """A program with the time in it is compiled, and its note says why nothing is kept."""
    built = _built(stores, ready(b"int x = __TIME__[0];"), compiler())
    assert (built.miss.verdict, built.key) == (Verdict.UNCACHEABLE, None)
    assert built.note.startswith("the source uses __TIME__")
    assert not list(tmp_path.rglob("*.gpc"))


def test_a_read_only_cache_is_read(stores: Stores, ready: Ready, compiler: Any, tmp_path: Path) -> None:
    """With read_only hits are served, and new builds are not kept."""
    known, new = ready(), ready(options=["-DNEW"])
    _built(stores, known, compiler())
    before = _files(tmp_path)
    reading = stores._replace(read_only=True)
    assert isinstance(find(reading, known), Hit)
    assert _built(reading, new, compiler()).note == "GPUCACHE_READ_ONLY is set, so it was not kept"
    assert _files(tmp_path) == before


def test_no_usable_root_says_why(ready: Ready, compiler: Any) -> None:
    """Without a root the reason is both the verdict and the note."""
    built = _built(Stores(unusable="the root is gone; make it"), ready(), compiler())
    assert (built.miss.verdict, built.miss.detail) == (Verdict.NOT_CONSULTED, "the root is gone; make it")
    assert built.note == "the root is gone; make it"


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            " in {root}: No space left on device; make room on its disk",
        ),
        (CacheUnusableError("the root is gone"), ": the root is gone"),
    ],
)
def test_what_cannot_be_kept_is_still_given_back(
    tmp_path: Path, ready: Ready, compiler: Any, failure: Exception, told: str
) -> None:
    """A full disk or a root that vanished costs the entry, not the program, and the note says which."""

    class Full(DirectoryStore):
        def publish(self, entry: Entry) -> int:  # noqa: ARG002 - the store's signature
            raise failure

    built = _built(Stores(user=Full(tmp_path / "cache", writable=True)), ready(), compiler())
    assert (built.artifact.payload, built.key) == (compiler().payload, None)
    assert built.note == f"nothing could be kept{told.format(root=tmp_path / 'cache')}"


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "I/O error"), CacheUnusableError("gone")])
def test_a_bound_that_cannot_be_kept_harms_nobody(
    stores: Stores, ready: Ready, compiler: Any, failure: Exception
) -> None:
    """A failed trim after a publish leaves the entry in place."""

    def trim() -> None:
        raise failure

    prepared = ready()
    assert _built(stores._replace(trim=trim), prepared, compiler()).key == prepared.key
    assert isinstance(find(stores, prepared), Hit)


def test_a_compile_error_leaves_nothing(stores: Stores, ready: Ready, tmp_path: Path) -> None:
    """A compile error is raised to the caller, and the next process may try at once."""

    def refuse() -> Artifact:
        raise CompileError("it does not compile")

    with pytest.raises(CompileError, match="does not compile"):
        get_or_build(stores, ready(), refuse)
    assert not list(tmp_path.rglob("*.gpc"))
    assert not left(tmp_path / "cache")


def test_a_sound_copy_below_makes_up_for_damage(tmp_path: Path, ready: Ready, compiler: Any) -> None:
    """A damaged entry in the user's root is not a miss while a system root has the program."""
    prepared = ready()
    stores = [DirectoryStore(tmp_path / name, writable=True) for name in ("user", "system")]
    for store in stores:
        _built(Stores(user=store), prepared, compiler())
    (path,) = (tmp_path / "user").rglob("*.gpc")
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    hit = find(Stores(user=stores[0], systems=(stores[1],)), prepared)
    assert isinstance(hit, Hit)
    assert hit.store == str(tmp_path / "system")


def test_a_useless_entry_is_replaced(stores: Stores, ready: Ready, compiler: Any) -> None:
    """An entry that a driver rejected is compiled again and replaced."""
    prepared = ready()
    stores = stores._replace(memory=MemoryStore(1 << 20))
    _built(stores, prepared, compiler("garbage"))
    found, miss = find(stores, prepared), Miss(Verdict.REJECTED, "the driver rejected the binary")
    assert isinstance(found, Hit)
    build(stores, prepared, compiler("sound"), miss, useless=found)
    for looked_in in (stores, stores._replace(memory=None)):
        hit = find(looked_in, prepared)
        assert isinstance(hit, Hit)
        assert hit.payload == compiler("sound").payload


def test_who_comes_second_waits_for_the_first(stores: Stores, ready: Ready, compiler: Any) -> None:
    """While one thread compiles, another with the same program waits and gets its result."""
    prepared, compiling, done = ready(), threading.Event(), threading.Event()

    def slowly() -> None:
        compiling.set()
        assert done.wait(PATIENCE_S)

    second = compiler("second")
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(get_or_build, stores, prepared, compiler("first", meanwhile=slowly))
        assert compiling.wait(PATIENCE_S)
        waiting = threads.submit(get_or_build, stores, prepared, second)
        done.set()
        assert isinstance(first.result(PATIENCE_S), Built)
        hit = waiting.result(PATIENCE_S)
    assert isinstance(hit, Hit)
    assert (hit.payload, second.asked) == (compiler("first").payload, 0)


def test_nobody_waits_beyond_the_limit(stores: Stores, ready: Ready, compiler: Any) -> None:
    """If another process holds the lock beyond the limit, the program is compiled anyway and kept."""
    prepared = ready()
    outcomes: list[Hit | Built] = []

    def impatient() -> None:
        miss = look_up(stores, prepared, whole=True)
        assert isinstance(miss, Miss)
        outcomes.append(build(stores, prepared, compiler("impatient"), miss, wait_s=0))

    _built(stores, prepared, compiler("slow", meanwhile=impatient))
    (outcome,) = outcomes
    assert isinstance(outcome, Built)
    assert outcome.key == prepared.key


class _Noticed(DirectoryStore):
    """Counts the threads that found the lock taken and wait for it."""

    waiting = threading.Semaphore(0)

    @contextmanager
    def single_flight(self, key: CacheKey, timeout_s: float) -> Iterator[bool]:
        if timeout_s:
            self.waiting.release()
        with super().single_flight(key, timeout_s) as holding:
            yield holding


def test_nobody_queues_behind_builds_that_keep_nothing(tmp_path: Path, ready: Ready, compiler: Any) -> None:
    """Those who waited for a build that kept nothing compile at once and together."""
    store = _Noticed(tmp_path / "cache", writable=True)
    stores, prepared, compiling, together = (
        Stores(user=store),
        ready(),
        threading.Event(),
        threading.Barrier(3),
    )

    def until_all_wait() -> None:
        compiling.set()
        for _ in range(3):
            assert store.waiting.acquire(timeout=PATIENCE_S)

    first = compiler(kind=ArtifactKind.CUBIN, meanwhile=until_all_wait)  # PTX was wanted: it is not kept
    others = [compiler(meanwhile=lambda: together.wait(PATIENCE_S)) for _ in range(3)]
    with ThreadPoolExecutor(4) as pool:
        begun = pool.submit(get_or_build, stores, prepared, first)
        assert compiling.wait(PATIENCE_S)
        waiting = [pool.submit(get_or_build, stores, prepared, each) for each in others]
        assert isinstance(begun.result(PATIENCE_S), Built)
        results = [each.result(PATIENCE_S) for each in waiting]
    assert [type(result) for result in results] == [Built] * 3


def test_an_entry_that_lacks_a_local_size_is_a_hit_for_a_program_alone(
    stores: Stores, ready: Ready, compiler: Any
) -> None:
    """A lookup hits whatever local sizes it names; for warm the entry is incomplete, and it says why."""
    opencl = compiler(kind=ArtifactKind.OPENCL_BINARY)
    key = _built(stores, ready(b"", implementation="pocl", local_sizes=[(64,)]), opencl).key
    wanted = ready(b"", implementation="pocl", local_sizes=[(64,), (16, 16)])
    assert isinstance(find(stores, wanted), Hit)
    miss = look_up(stores, wanted, whole=True)
    assert isinstance(miss, Miss)
    assert (miss.verdict, miss.nearest) == (Verdict.INCOMPLETE, key)
    assert "is compiled for 64, and not for 16x16" in miss.detail
    assert isinstance(find(stores, ready(b"", implementation="pocl"), whole=True), Hit)
