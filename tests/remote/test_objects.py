"""One contract for every kind of store elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from gpucache.errors import RemoteError, UsageError
from gpucache.remote.objects import IN_FLIGHT_BYTES, Objects, Paced, batches, in_parallel, open_objects
from gpucache.remote.removal import SIGN, SIGN_TEXT, is_signed, sign
from tests.remote.servers import docker_registry, make_bucket, moto_url, nginx, use_cloud

Opener = Callable[[], Objects]
ONE, TWO = (f"blobs/{digits}/{digits * 32}" for digits in ("ab", "cd"))
"""Names that gpucache gives."""


def _folder(request: pytest.FixtureRequest) -> str:
    place: Path = request.getfixturevalue("tmp_path")
    return str(place / "store")


def _s3(request: pytest.FixtureRequest) -> str:
    bucket = request.getfixturevalue("bucket")
    return f"{bucket}/{uuid4().hex}/caches"


def _registry(request: pytest.FixtureRequest) -> str:
    return f"{request.getfixturevalue('registry_url')}/{uuid4().hex}"


_STORES = {"folder": _folder, "registry": _registry, "s3": _s3}
"""The URL of an empty store of each kind; servers are shared by the tests of a module."""


@pytest.fixture(name="bucket", scope="module")
def _bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("moto")
    with moto_url(folder) as url, pytest.MonkeyPatch.context() as patch:
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
        use_cloud(patch, folder, AWS_ENDPOINT_URL=url, **keys)
        yield make_bucket(url, "shared")


@pytest.fixture(name="registry_url", scope="module")
def _registry_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as url:
        yield url


@pytest.fixture(name="opened", params=_STORES)
def _opened(request: pytest.FixtureRequest) -> Iterator[Opener]:
    """Opens the same empty store, again at each call, as several machines do."""
    url = _STORES[request.param](request)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(open_objects(url)))


def _names(objects: Objects, prefix: str = "") -> list[str]:
    return sorted(one.name for one in objects.listed(prefix))


def test_a_signed_place_is_a_store(opened: Opener) -> None:
    """Objects of another program make none."""
    list(opened().create([("a/one", b"1")]))
    assert not is_signed(opened())
    sign(opened())
    assert is_signed(opened())


def test_a_place_with_another_text_in_place_of_the_sign_is_no_store(opened: Opener) -> None:
    list(opened().create([(SIGN, SIGN_TEXT.upper())]))
    assert not is_signed(opened())


def test_an_object_comes_back_as_it_was_created(opened: Opener) -> None:
    """An object that one machine creates is listed and read by another; a missing object is None."""
    assert dict(opened().create([("a/one", b"1"), ("a/two", b""), ("b/three", b"3" * 100_000)])) == {
        "a/one": True,
        "a/two": True,
        "b/three": True,
    }
    assert _names(opened()) == ["a/one", "a/two", "b/three"]
    assert [(one.name, one.size_bytes) for one in opened().listed("b/")] == [("b/three", 100_000)]
    assert dict(opened().read(["a/one", "a/two", "no"], 1 << 20)) == {"a/one": b"1", "a/two": b"", "no": None}


def test_an_object_is_created_once(opened: Opener) -> None:
    """The second writer leaves the first one's bytes."""
    list(opened().create([("a", b"first")]))
    assert list(opened().create([("a", b"second")])) == [("a", False)]
    assert dict(opened().read(["a"], 100)) == {"a": b"first"}


def test_a_store_that_does_not_exist_is_empty(opened: Opener) -> None:
    """Nothing is listed or read, and removing is not an error."""
    assert _names(opened()) == []
    assert dict(opened().read(["a"], 100)) == {"a": None}
    opened().remove([ONE])


def test_an_object_beyond_the_limit_is_not_read(opened: Opener) -> None:
    """Its length is bounded before anything is allocated, and others are read."""
    list(opened().create([("a", b"12345"), ("b", b"1234")]))
    assert dict(opened().read(["a", "b"], 4)) == {"a": None, "b": b"1234"}


def test_removed_objects_are_gone(opened: Opener) -> None:
    list(opened().create([(ONE, b"1"), ("b", b"2")]))
    opened().remove([ONE, TWO])
    assert _names(opened()) == ["b"]


_OTHERS = "b", "index", "blobs/sha256/" + "ab" * 32, "blobs/cd/" + "ab" * 32, "entries/ab/thumbs.db", "../x"


@pytest.mark.parametrize("name", _OTHERS)
def test_an_object_of_another_name_than_gpucache_gives_is_not_removed(opened: Opener, name: str) -> None:
    """It may be another program's, whoever asks for that."""
    if "." not in name:
        list(opened().create([(name, b"1")]))
    with pytest.raises(RemoteError, match="by hand"):
        opened().remove([name])
    assert _names(opened()) == ([name] if "." not in name else [])


def test_replacing_sees_what_was_there(opened: Opener) -> None:
    """Each writer changes the result of the one before it."""
    opened().replace("index", lambda old: (old or b"") + b"1")
    opened().replace("index", lambda old: (old or b"") + b"2")
    assert dict(opened().read(["index"], 100)) == {"index": b"12"}


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "", "A", "a b"])
def test_a_name_that_could_leave_the_store_is_refused(opened: Opener, name: str) -> None:
    """No request is made with it."""
    with pytest.raises(RemoteError):
        list(opened().read([name], 10))


_MALFORMED = {
    "s3://BUCKET/PREFIX": "s3://, s3:///x, s3://k:s3cret@b, s3://b/../c, s3://b//c, s3://b/c?d=e, s3://b c, az://b/%2e",
    "bucket": "redis://host, rediss://me:s3cret@host/0?prefix=p",
    "HOST": "oci://, oci://host, oci://host/Team, oci://me:s3cret@host/team, oci://host/team:t?x=1",
    "web server": "https://, https:///path, https://host/a?b=c, https://host/a#b, https://host:99999/, https://[host/",
    "s3://": "ftp://host/path",
}


@pytest.mark.parametrize(
    ("form", "url"), [(form, url) for form, urls in _MALFORMED.items() for url in urls.split(", ")]
)
def test_a_malformed_url_is_a_usage_error(form: str, url: str) -> None:
    """The message shows the form, and not the URL, which may have a password."""
    with pytest.raises(UsageError, match=form) as caught:
        open_objects(url)
    assert "s3cret" not in caught.value.message


def test_a_web_server_serves_what_a_directory_contains(tmp_path: Path) -> None:
    """It reads the same objects, within the same limits, and cannot do anything else."""
    folder = open_objects(str(tmp_path / "store" / "deep"))
    made = {"blobs/ab/one": b"1" * 3_000_000, "index": b""}
    assert all(dict(folder.create(made.items())).values())
    with nginx(tmp_path / "store", tmp_path) as url, closing(open_objects(f"{url}/deep/")) as web:
        assert web.url == f"{url}/deep"
        assert not web.lists and not web.writes
        assert dict(web.read([*made, "blobs"[:-1]], 3_000_000)) == made | {"blob": None}
        assert dict(web.read(["blobs/ab/one"], 2_999_999)) == {"blobs/ab/one": None}
        with pytest.raises(RemoteError):
            list(web.read(["../deep/index"], 2_999_999))
        for only in (lambda: web.listed(""), lambda: web.create([("a", b"")]), lambda: web.remove(["index"])):
            with pytest.raises(RemoteError, match="can only be read"):
                list(only() or ())
    with pytest.raises(RemoteError, match="cannot be reached"):
        list(web.read(["index"], 10))


def test_few_bytes_are_under_way() -> None:
    """Of items of half the memory bound, two are in work at a time, whatever the threads."""
    three = Barrier(3)

    def meets_two_others(_: int) -> bool:
        try:
            three.wait(0.3)
        except BrokenBarrierError:
            return False
        return True

    met = in_parallel(meets_two_others, range(4), weight=lambda _: IN_FLIGHT_BYTES // 2)
    assert list(met) == [False] * 4


def test_batches_are_bounded_in_number_and_bytes() -> None:
    """A batch is as large as allowed, and a larger item is a batch by itself."""
    found = batches([1, 2, 3, 9, 1, 1, 1, 1], 3, lambda size: size, most_bytes=5)
    assert list(found) == [[1, 2], [3], [9], [1, 1, 1], [1]]


class _Clock:
    """A clock that stands still but for the requests of stores."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def slowed(self, store: Objects, seconds: float) -> Objects:
        """A store that takes so long for each object, or for each call."""

        def each(call: Callable[..., Any], *words: Any) -> Iterator[Any]:
            for one in call(*words):
                self.now_s += seconds
                yield one

        def once(call: Callable[..., Any], *words: Any) -> None:
            self.now_s += seconds
            call(*words)

        ways = {"listed": each, "read": each, "create": each, "replace": once, "remove": once, "finish": once}
        found = {name: partial(way, getattr(store, name)) for name, way in ways.items()}
        same = {name: getattr(store, name) for name in ("url", "lists", "served", "writes", "close")}
        return cast("Objects", SimpleNamespace(**same, **found))


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    monkeypatch.setattr("gpucache.remote.objects.time", clock := _Clock())
    return clock


def _often(call: Callable[[], object]) -> None:
    for _ in range(40):
        call()


def test_a_store_that_takes_seconds_for_each_object_ends_a_command(opened: Opener, clock: _Clock) -> None:
    """Whatever it calls, and though each reply is in time; what was created stays, and the next goes on."""
    names = {f"blobs/{number:02x}/{number:02x}{number:062x}": b"1" for number in range(40)}
    with pytest.raises(RemoteError, match="--timeout"):
        list(Paced(clock.slowed(opened(), 2.0), 30.0).create(names.items()))
    assert len(_names(opened())) > 10
    assert len(list(Paced(clock.slowed(opened(), 0.25), 30.0).create(names.items()))) == 40

    store = clock.slowed(opened(), 2.0)
    repeated: list[Callable[[Objects], object]] = [
        lambda paced: list(paced.read(names, 10)),
        lambda paced: _often(lambda: list(paced.listed("blobs/00/"))),
        lambda paced: _often(lambda: paced.replace("index", lambda _: b"1")),
        lambda paced: _often(lambda: paced.remove([])),
        lambda paced: _often(paced.finish),
    ]
    for call in repeated:
        with pytest.raises(RemoteError, match="--timeout"):
            call(Paced(store, 30.0))
        call(Paced(clock.slowed(opened(), 0.25), 30.0))


def test_a_store_is_not_slow_while_its_command_works(tmp_path: Path, clock: _Clock) -> None:
    """The time until the command gives an object to send, or takes the next one, is not the store's."""

    def work(number: int) -> tuple[str, bytes]:
        clock.now_s += 100.0
        return f"entries/{number}", b"1"

    paced = Paced(open_objects(str(tmp_path)), 1.0)
    for _ in paced.create(map(work, range(20))):
        clock.now_s += 100.0
    for _ in paced.read([f"entries/{number}" for number in range(20)], 10):
        clock.now_s += 100.0
