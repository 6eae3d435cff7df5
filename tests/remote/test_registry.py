"""An OCI registry: packs that other tools copy, simultaneous pushes, removal, login, and false replies."""

import json
import re
import shutil
import tarfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from hashlib import sha256
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from gpucache.answers.entries import CacheEntry, Location
from gpucache.caches.own import OwnCache
from gpucache.errors import RemoteError
from gpucache.remote import connections
from gpucache.remote import registry as store
from gpucache.remote.objects import File, Files, Limits, Objects, open_objects
from gpucache.remote.push import push
from gpucache.remote.registry_client import RegistryClient
from gpucache.remote.signing import TrustedKeys, load_signing_key, make_pair
from gpucache.serve.row_cache import NAME, RowCache
from gpucache.store.directory import DirectoryStore
from tests.children import run_text
from tests.remote.servers import docker_registry, free_port
from tests.remote.test_objects import ONE, TWO

_LIMITS = Limits(connect_s=5, request_s=30, retries=1)
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@contextmanager
def _opened(url: str, limits: Limits = _LIMITS) -> Iterator[Objects]:
    with closing(open_objects(url, limits)) as opened:
        yield opened


def _create(url: str, *objects: tuple[str, bytes]) -> dict[str, bool]:
    with _opened(url) as opened:
        return dict(opened.create(objects))


def _contents(url: str) -> dict[str, bytes | None]:
    with _opened(url) as opened:
        return dict(opened.read([one.name for one in opened.listed("")], 1 << 30))


def _tags(url: str) -> list[str]:
    """The tags of a store, as skopeo lists them."""
    tags: list[str] = json.loads(_skopeo("list-tags", "--tls-verify=false", _docker(url)))["Tags"]
    return tags


def _raw(reference: str) -> bytes:
    """A manifest or an index."""
    return _skopeo("inspect", "--raw", "--tls-verify=false", _docker(reference)).encode()


def _copy(source: str, target: str, *words: str) -> None:
    plain = ("--src-tls-verify=false", "--dest-tls-verify=false")
    _skopeo("copy", *words, *plain, _docker(source), _docker(target))


def _docker(url: str) -> str:
    return url.replace("oci://", "docker://")


def _skopeo(*words: str) -> str:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    done = run_text(["skopeo", "--insecure-policy", *words])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(name="url", scope="module")
def _url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as url:
        yield url


@pytest.fixture(name="small_layers")
def _small_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LAYER_BYTES", 1000)
    monkeypatch.setattr(store, "_GAP_BYTES", 50)


def test_skopeo_inspects_a_pack_and_copies_it_to_another_repository(url: str, tmp_path: Path) -> None:
    """After a copy through a directory and back, its objects are unchanged."""
    here, there = f"{url}/from:kernels", f"{url}/to:kernels"
    objects = {"blobs/a": b"1" * 5000, "blobs/b": b"", "c": b"3"}
    _create(here, *objects.items())
    (tag,) = _tags(f"{url}/from")
    assert re.fullmatch("kernels-[0-9a-f]{12}", tag)
    source, target = (f"{_docker(url)}/{name}:{tag}" for name in ("from", "to"))
    assert sha256(_skopeo("inspect", "--raw", "--tls-verify=false", source).encode()).hexdigest()[:12] in tag
    config = json.loads(_skopeo("inspect", "--config", "--raw", "--tls-verify=false", source))
    assert set(config) == {"written_ns", "objects", "about"}
    _skopeo("copy", "--src-tls-verify=false", source, f"dir:{tmp_path}/copy")
    _skopeo("copy", "--dest-tls-verify=false", f"dir:{tmp_path}/copy", target)
    assert _contents(there) == objects


def test_pushes_at_once_lose_nothing(url: str) -> None:
    """Each has its own tag; a common object is there once."""
    place = f"{url}/at-once"
    barrier = Barrier(4)

    def push(number: int) -> dict[str, bool]:
        with _opened(place) as opened:
            list(opened.listed(""))
            barrier.wait()
            return dict(opened.create([("shared", b"same"), (f"of/{number}", bytes([number]))]))

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(push, range(4)))
    assert all(result[f"of/{number}"] for number, result in enumerate(results))
    assert _contents(place) == {"shared": b"same"} | {f"of/{number}": bytes([number]) for number in range(4)}


def test_objects_of_many_layers_come_back_however_few_are_wanted(url: str, small_layers: None) -> None:
    """Neighbours, lone objects, whole layers and an object larger than a layer."""
    place = f"{url}/many-layers"
    objects = {f"o/{number}": bytes([number]) * (40 * number) for number in range(40)} | {"big": b"b" * 5000}
    assert set(_create(place, *objects.items()).values()) == {True}
    with _opened(place) as opened:
        for names in (["o/1"], ["o/1", "o/2", "o/30"], ["o/39", "o/0"], ["big"], list(objects)[::3], objects):
            assert dict(opened.read(names, 5000)) == {name: objects[name] for name in names}


def test_a_removed_object_is_gone_and_the_others_of_its_pack_stay(url: str, small_layers: None) -> None:
    """The pack is written anew without it, with only the layers that are still needed."""
    place = f"{url}/removed"
    _create(place, (ONE, b"1" * 600), ("b", b"2" * 600), (TWO, b"3" * 300))
    (before,) = _tags(place)
    with _opened(place) as opened:
        opened.remove([ONE, TWO])
        assert [one.name for one in opened.listed("")] == ["b"]
    assert _contents(place) == {"b": b"2" * 600}
    (after,) = _tags(place)
    assert after != before
    manifest = json.loads(_skopeo("inspect", "--raw", "--tls-verify=false", f"{_docker(place)}:{after}"))
    assert len(manifest["layers"]) == 1
    assert _create(place, (ONE, b"again")) == {ONE: True}


def _unpacked(url: str, place: Path) -> dict[str, bytes]:
    """The files in the image of the tag that was asked for, as skopeo copies and umoci unpacks it."""
    if shutil.which("umoci") is None:
        pytest.skip("umoci is not installed")
    image = f"oci:{place}/layout:x"
    _skopeo("copy", "--src-tls-verify=false", f"{_docker(url)}:gpucache", image)
    done = run_text(["umoci", "unpack", "--rootless", "--image", image.removeprefix("oci:"), f"{place}/made"])
    assert done.returncode == 0, done.stderr
    root = place / "made" / "rootfs"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


_KEY = "ab" * 32


def test_the_tag_is_an_image_with_files_as_their_owners_lay_them_out(url: str, tmp_path: Path) -> None:
    """Entries of our own are a root, those of others have their paths, and equal files are at each."""
    place = f"{url}/files"
    own = f"entries/ab/{_KEY}-{'0' * 16}"
    files = {own: File(f"v1/entries/ab/{_KEY}.gpc", 6), ONE: File("triton/x/k.cubin", about="triton sm_90")}
    with _opened(place) as opened:
        assert all(dict(opened.create([(own, b"line!\nentry"), (ONE, b"cubin")], Files(files, []))).values())
        again = Files({ONE: File("triton/y/k.cubin")}, [("triton/z/k.cubin", b"cubin")])
        assert dict(opened.create([(ONE, b"cubin"), (TWO, b"2")], again)) == {ONE: False, TWO: True}
        opened.finish()
    assert _contents(place) == {own: b"line!\nentry", ONE: b"cubin", TWO: b"2"}
    found = _unpacked(place, tmp_path)
    assert found == {
        f"gpucache/{own}": b"line!\n",
        f"gpucache/{TWO}": b"2",
        f"v1/entries/ab/{_KEY}.gpc": b"entry",
        **{f"triton/{name}/k.cubin": b"cubin" for name in "xyz"},
    }
    image = json.loads(_skopeo("inspect", "--raw", "--tls-verify=false", f"{_docker(place)}:gpucache"))
    assert image["artifactType"] == "application/vnd.gpucache.store.v1"
    assert "triton sm_90" in json.loads(image["annotations"]["org.gpucache.contents"])


def test_rows_are_where_a_root_has_them(url: str, tmp_path: Path) -> None:
    """So that a program whose root is the image hits by them."""
    root = tmp_path / "root"
    rows = RowCache(
        OwnCache(DirectoryStore(root, writable=True), Location("gpucache", str(root), "", enabled=True))
    )
    entry = CacheEntry(NAME, f"{_KEY}-row", "v1/rows/2.row", 3, 0, 0, handle=b"row")
    make_pair(tmp_path / "key")
    key = load_signing_key(tmp_path / "key")
    with _opened(f"{url}/rows") as opened:
        list(
            push(
                [(rows, [entry])],
                opened,
                key=key,
                trusted=TrustedKeys({}),
                sources=False,
                dry_run=False,
                progress=lambda *_: None,
            )
        )
    assert _unpacked(f"{url}/rows", tmp_path)["v1/rows/2.row"] == b"row"


@pytest.mark.parametrize("by_digest", [False, True])
def test_oras_pulls_the_files_of_an_image(url: str, tmp_path: Path, by_digest: bool) -> None:
    """Every layer is a tar file, whose bytes have the digest that the manifest names."""
    import oras.client

    place = f"{url}/oras-{by_digest}".lower()
    with _opened(place) as opened:
        list(opened.create([(ONE, b"1"), (TWO, b"2")]))
        opened.finish()
    reference = f"@{_digest(_raw(f'{place}:gpucache.amd64'))}" if by_digest else ":gpucache.amd64"
    client = oras.client.OrasClient(insecure=True)
    [layer] = client.pull(f"{place.removeprefix('oci://')}{reference}", outdir=str(tmp_path))
    with tarfile.open(layer) as tar:
        assert tar.getnames() == [f"gpucache/{ONE}", f"gpucache/{TWO}"]


def _finished(url: str, *objects: tuple[str, bytes]) -> None:
    with _opened(url) as opened:
        list(opened.create(objects))
        opened.finish()


def test_the_index_has_an_image_for_each_platform_and_then_the_packs(url: str) -> None:
    """Both images have the same layers, and no platform is that of a pack."""
    place = f"{url}/index"
    _finished(place, (ONE, b"1"))
    _finished(place, (TWO, b"2"))
    index = json.loads(_raw(f"{place}:gpucache"))
    platforms = [one["platform"]["architecture"] for one in index["manifests"]]
    assert platforms == ["amd64", "arm64", "unknown", "unknown"]
    images = [json.loads(_raw(f"{place}@{one['digest']}")) for one in index["manifests"]]
    assert len(images[0]["layers"]) == 2
    assert images[0]["layers"] == images[1]["layers"]
    packs = {f"gpucache-{one['digest'][7:19]}" for one in index["manifests"][2:]}
    assert {"gpucache", "gpucache.amd64", "gpucache.arm64", *packs} == set(_tags(place))


def test_a_copy_of_the_index_is_a_store(url: str, tmp_path: Path) -> None:
    """In another registry, where skopeo compresses layers of images, by another tag; and after a push there
    whose index somebody replaces by the first one again."""
    here = f"{url}/original"
    _finished(here, (ONE, b"1" * 9999), ("pins/x", b"0"))
    with _opened(here) as opened:
        opened.replace("pins/x", lambda _: b"new")
        opened.finish()
    objects = {ONE: b"1" * 9999, "pins/x": b"new"}
    with docker_registry(tmp_path) as there:
        _copy(f"{here}:gpucache", f"{there}:other", "--all")
        assert _tags(there) == ["other"]
        assert _contents(f"{there}:other") == objects
        _create(f"{there}:other", (TWO, b"2"))
        _copy(f"{here}:gpucache", f"{there}:other", "--all")
        assert _contents(f"{there}:other") == objects | {TWO: b"2"}


def test_an_index_that_is_older_brings_no_removed_object_back(url: str, tmp_path: Path) -> None:
    """Also where the registry removes no manifests; the next writer derives the index again."""
    with docker_registry(tmp_path, {"REGISTRY_STORAGE_DELETE_ENABLED": "false"}) as keeping:
        for place in (f"{url}/late", keeping):
            _finished(place, (ONE, b"1"))
            _finished(place, ("b", b"2"))
            with _opened(place) as killed:
                killed.remove([ONE])
            assert _contents(place) == {"b": b"2"}
            _finished(place, (TWO, b"3"))
            _copy(f"{place}:gpucache", f"{place}-copy:gpucache", "--all")
            assert _contents(f"{place}-copy") == {"b": b"2", TWO: b"3"}


def test_a_digest_is_read_as_it_was(url: str) -> None:
    """That of the index, also of a copy, or of a pack; nothing is written there."""
    place = f"{url}/digest"
    _finished(place, (ONE, b"1"))
    digest = _digest(_raw(f"{place}:gpucache"))
    pack = json.loads(_raw(f"{place}:gpucache"))["manifests"][-1]["digest"]
    _copy(f"{place}:gpucache", f"{place}-copy:gpucache", "--all", "--preserve-digests")
    _finished(place, (TWO, b"2"))
    for there in (f"{place}@{digest}", f"{place}-copy:gpucache@{digest}", f"{place}@{pack}"):
        assert _contents(there) == {ONE: b"1"}
    with _opened(place) as opened:
        opened.remove([ONE])
    with pytest.raises(RemoteError, match="pin a copy"):
        _contents(f"{place}@{digest}")
    with _opened(f"{place}@{digest}") as opened:
        assert opened.url == f"{place}@{digest}"
        assert not opened.writes
        with pytest.raises(RemoteError, match="name its tag"):
            list(opened.create([(TWO, b"2")]))


def test_an_image_without_packs_is_told(url: str) -> None:
    """A copy for one platform; neither is it read as an empty store, nor written over."""
    here, there = f"{url}/whole", f"{url}/part"
    _finished(here, (ONE, b"1"))
    _copy(f"{here}:gpucache", f"{there}:gpucache")
    with pytest.raises(RemoteError, match="skopeo copy --all"):
        _contents(there)
    with pytest.raises(RemoteError, match="skopeo copy --all"):
        _create(there, (TWO, b"2"))


def test_writers_at_once_leave_an_index_of_all(url: str) -> None:
    """The last one to write it looks whether a pack has come since."""
    place = f"{url}/indexes"
    barrier = Barrier(4)

    def push(number: int) -> None:
        with _opened(place) as opened:
            barrier.wait()
            list(opened.create([(f"of/{number}", bytes([number]))]))
            opened.finish()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(push, range(4)))
    _copy(f"{place}:gpucache", f"{place}-copy:gpucache", "--all")
    assert _contents(f"{place}-copy") == {f"of/{number}": bytes([number]) for number in range(4)}


def test_a_refused_upload_is_sent_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of bytes that were mixed up on the way."""
    ask, refused = RegistryClient.ask, list[int]()

    def mixed_up(client: RegistryClient, method: str, path: str, *more: Any, **how: Any) -> object:
        if method == "PUT" and "uploads" in path and not refused:
            how["body"] = b"x"
            reply = ask(client, method, path, *more, **how)
            refused.append(reply.status)
            return reply
        return ask(client, method, path, *more, **how)

    monkeypatch.setattr(RegistryClient, "ask", mixed_up)
    assert _create(f"{url}/again", (ONE, b"1")) == {ONE: True}
    assert refused == [400]
    assert _contents(f"{url}/again") == {ONE: b"1"}


@pytest.mark.parametrize("status", [400, 404])
def test_a_refused_manifest_is_sent_again(url: str, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """As docker-registry refuses one at a tag that another writer is writing, which has time to end."""
    ask, refused, pauses = RegistryClient.ask, set[str](), list[float]()

    def half_written(client: RegistryClient, method: str, path: str, *more: Any, **how: Any) -> object:
        if method == "PUT" and path.startswith("manifests/") and path not in refused:
            refused.add(path)
            assert status in more[0]
            return connections.Reply(status, HTTPMessage(), b"", path)
        return ask(client, method, path, *more, **how)

    monkeypatch.setattr(RegistryClient, "ask", half_written)
    monkeypatch.setattr("gpucache.remote.registry.time.sleep", pauses.append)
    place = f"{url}/half-written-{status}"
    _finished(place, (ONE, b"1"))
    assert len(refused) == len(pauses) == 4 and all(pauses)
    assert _contents(f"{place}:gpucache") == {ONE: b"1"}


def test_a_manifest_that_is_refused_for_good_is_sent_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a registry that makes no repositories."""
    ask, sent = RegistryClient.ask, list[str]()

    def unknown(client: RegistryClient, method: str, path: str, *more: Any, **how: Any) -> object:
        if method == "PUT" and path.startswith("manifests/"):
            sent.append(path)
            told = b'{"errors": [{"code": "NAME_UNKNOWN", "message": "no such repository"}]}'
            return connections.Reply(404, HTTPMessage(), told, path)
        return ask(client, method, path, *more, **how)

    monkeypatch.setattr(RegistryClient, "ask", unknown)
    with pytest.raises(RemoteError, match="NAME_UNKNOWN: no such repository"):
        _create(f"{url}/unknown", (ONE, b"1"))
    assert len(sent) == 1


def test_small_packs_are_merged_when_they_have_many_layers(url: str) -> None:
    """No object is lost, removed ones stay removed, dates stay, and a reader of before finds all."""
    place = f"{url}/merged"
    objects = {f"blobs/{number:02x}/{f'{number:02x}' * 32}": b"%d" % number for number in range(45)}
    with _opened(place) as early:
        for pair in objects.items():
            with _opened(place) as opened:
                list(opened.create([pair]))
        assert len(list(early.listed(""))) == 45
        gone = next(iter(objects))
        with _opened(place) as opened:
            opened.remove([gone])
            dated = {one.name: one.written_ns for one in opened.listed("")}
            opened.finish()
        del objects[gone]
        assert dict(early.read(objects, 10)) == objects
    assert _contents(place) == objects
    with _opened(place) as opened:
        assert all(one.written_ns >= dated[one.name] for one in opened.listed(""))
    assert len(_tags(place)) <= 25


def _appended(new: bytes, old: bytes | None) -> bytes:
    return (old or b"") + new


def test_a_replaced_object_has_one_tag(url: str) -> None:
    """However often it is replaced; an earlier reader sees it, and not the object in a pack."""
    place = f"{url}/replaced"
    _create(place, ("index", b"!"))
    with _opened(place) as reader:
        for number in range(3):
            with _opened(place) as opened:
                opened.replace("index", partial(_appended, bytes([number])))
            assert [one.size_bytes for one in reader.listed("")] == [2 + number]
        assert dict(reader.read(["index"], 10)) == {"index": b"!\0\1\2"}
    assert len(_tags(place)) == 1


def test_an_object_that_comes_twice_is_created_once(url: str) -> None:
    """And one without bytes may be alone in its pack."""
    place = f"{url}/twice"
    with _opened(place) as opened:
        assert sorted(opened.create([("a", b""), ("a", b"2")])) == [("a", False), ("a", True)]
    assert _contents(place) == {"a": b""}


def test_objects_are_removed_where_the_registry_removes_nothing(tmp_path: Path) -> None:
    """Its tags then lead to an empty pack; the same objects can be created again."""
    with docker_registry(tmp_path, {"REGISTRY_STORAGE_DELETE_ENABLED": "false"}) as url:
        _create(url, (ONE, b"1"), ("b", b"2"))
        _create(url, (TWO, b"3"))
        with _opened(url) as opened:
            opened.remove([ONE, TWO])
            assert [one.name for one in opened.listed("")] == ["b"]
        assert _contents(url) == {"b": b"2"}
        assert _create(url, (ONE, b"1"), ("b", b"2")) == {ONE: True, "b": False}
        assert _contents(url) == {ONE: b"1", "b": b"2"}


_HTPASSWD = "me:$2y$05$aaaaaaaaaaaaaaaaaaaaaOwN3kL1r/5tCX49L9FU8BMpbjRXGyPKS\n"


def _log_in(url: str, password: str) -> None:
    place = Path("~/.docker/config.json").expanduser()
    place.parent.mkdir(exist_ok=True)
    word = b64encode(f"me:{password}".encode()).decode()
    place.write_text(json.dumps({"auths": {urlsplit(url).netloc: {"auth": word}}}), encoding="utf-8")


def test_the_credentials_of_docker_login_are_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without credentials or with wrong ones the message has the command to run, and no password."""
    (tmp_path / "users").write_text(_HTPASSWD, encoding="ascii")
    env = {"REGISTRY_AUTH": "htpasswd", "REGISTRY_AUTH_HTPASSWD_REALM": "caches"}
    with docker_registry(tmp_path, env | {"REGISTRY_AUTH_HTPASSWD_PATH": f"{tmp_path}/users"}) as url:
        with pytest.raises(RemoteError, match="run 'docker login 127"):
            _create(url, ("a", b"1"))
        _log_in(url, "wr0ng")
        with pytest.raises(RemoteError, match="run 'docker login 127") as caught:
            _create(url, ("a", b"1"))
        assert "wr0ng" not in caught.value.message
        _log_in(url, "s3cret")
        assert _create(url, ("a", b"1")) == {"a": True}
        assert _contents(url) == {"a": b"1"}
    assert caplog.messages == []


class _Endless:
    """A reply that goes on until the reader hangs up."""


class _Silent:
    """A reply that never comes."""


class _Dripping:
    """A reply that comes byte by byte, and is never complete."""


class _Said(NamedTuple):
    status: int
    headers: Mapping[str, str] = {}
    data: bytes = b""


Reply = bytes | _Said | type[_Endless] | type[_Silent] | type[_Dripping]


@contextmanager
def _fake(reply: Callable[[str, Mapping[str, str]], Reply]) -> Iterator[str]:
    """A server that replies to each path below the repository by a function."""
    ended = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = reply(self.path.removeprefix("/v2/team/caches/"), dict(self.headers))
            with suppress(OSError):
                if told is _Silent:
                    ended.wait(30)
                elif told in (_Endless, _Dripping):
                    self.send_response(200)
                    self.end_headers()
                    while not ended.wait(0.01 if told is _Dripping else 0):
                        self.wfile.write(bytes(1 if told is _Dripping else 1 << 16))
                elif isinstance(told, _Said | bytes):
                    said = told if isinstance(told, _Said) else _Said(200, {}, told)
                    self.send_response(said.status)
                    for name, value in ({"Content-Length": str(len(said.data))} | dict(said.headers)).items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(said.data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = False
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"oci://127.0.0.1:{server.server_address[1]}/team/caches"
        finally:
            ended.set()
            server.shutdown()
            thread.join()


def _told(answers: Mapping[str, Reply]) -> Callable[[str, Mapping[str, str]], Reply]:
    return lambda path, _: answers.get(path.partition("?")[0], _Said(404))


def _digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def _blob(media_type: str, data: bytes, size: int | None = None) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data) if size is None else size}


def _honest(
    objects: Sequence[object] = (("a", 0, 0, 3), ("b", 0, 3, 2)),
    config_type: str = "application/vnd.gpucache.pack.v1+json",
    config_size: int | None = None,
) -> dict[str, Reply]:
    """The replies of a registry with one pack, as we write it by default."""
    layer, config = b"oneB!", json.dumps({"written_ns": 5, "objects": objects}).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _blob(config_type, config, config_size),
            "layers": [_blob("application/vnd.oci.image.layer.v1.tar", layer)],
        }
    ).encode()
    tag = f"gpucache-{_digest(manifest)[7:19]}"
    return {
        "tags/list": json.dumps({"tags": [tag, "latest"]}).encode(),
        f"manifests/{tag}": manifest,
        f"blobs/{_digest(config)}": config,
        f"blobs/{_digest(layer)}": layer,
    }


def test_a_pack_has_the_form_that_is_documented() -> None:
    """A pack made by hand is read, also from a server without ranges."""
    with _fake(_told(_honest())) as url:
        assert _contents(url) == {"a": b"one", "b": b"B!"}
        with _opened(url) as opened:
            assert dict(opened.read(["b"], 2)) == {"b": b"B!"}
            assert [one.written_ns for one in opened.listed("b")] == [5]


def test_a_range_that_is_too_short_is_refused() -> None:
    """Before any object is made of it."""
    answers = _honest()
    answers[list(answers)[-1]] = _Said(206, {}, b"B")
    with _fake(_told(answers)) as url, _opened(url) as opened, pytest.raises(RemoteError, match="too early"):
        list(opened.read(["b"], 2))


_TAGS, _TAG, _CONFIG, _LAYER = range(4)
_LIES: Mapping[str, tuple[int, Reply]] = {
    "tags that are garbage": (_TAGS, b"<html>"),
    "tags that are nested without end": (_TAGS, b"[" * 100_000),
    "tags without end": (_TAGS, _Endless),
    "tags that go on elsewhere": (_TAGS, _Said(200, {"Link": '<http://127.0.0.1:1/x>; rel="next"'}, b"{}")),
    "tags that go round": (_TAGS, _Said(200, {"Link": '</v2/team/caches/tags/list>; rel="next"'}, b"{}")),
    "too many packs": (
        _TAGS,
        json.dumps({"tags": [f"gpucache-{number:012x}" for number in range(10_001)]}).encode(),
    ),
    "redirections without end": (_TAGS, _Said(307, {"Location": "/v2/team/caches/tags/list"})),
    "errors of the server": (_TAGS, _Said(500, {}, b'{"errors": [{"code": "UNKNOWN", "message": "\\n"}]}')),
    "errors that are garbage": (_TAGS, _Said(418, {}, b'{"errors": 5}')),
    "an error without end": (_TAGS, _Said(418, {"Content-Length": str(1 << 40)}, bytes(1 << 20))),
    "a manifest of nothing": (_TAG, b"{}"),
    "another manifest": (_TAG, list(_honest([("x", 0, 0, 1)]).values())[_TAG]),
    "a manifest without end": (_TAG, _Endless),
    "a config without end": (_CONFIG, _Endless),
    "another config": (_CONFIG, b"{}"),
    "a layer without end": (_LAYER, _Endless),
    "a layer that is too short": (_LAYER, b"one"),
    "a layer that ends before its length": (_LAYER, _Said(200, {"Content-Length": "5"}, b"one")),
    "other bytes in a layer": (_LAYER, b"oneB?"),
}


@pytest.mark.parametrize("lie", _LIES)
def test_a_registry_that_lies_is_refused(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replies are bounded, and refused in one sentence."""
    monkeypatch.setattr(store, "_MOST_PAGES", 5)
    at, reply = _LIES[lie]
    answers = _honest()
    answers[list(answers)[at]] = reply
    with _fake(_told(answers)) as url:
        _refuse(url)


def _index(digest: str) -> bytes:
    pack = {"mediaType": _MANIFEST, "digest": digest, "size": 1, "platform": dict(store._NO_PLATFORM)}
    return json.dumps({"schemaVersion": 2, "manifests": [pack]}).encode()


@pytest.mark.parametrize("reply", [b"<html>", b"[" * 100_000, _Endless, _index(f"sha256:{'0' * 64}")])
def test_an_index_that_lies_is_refused(reply: Reply) -> None:
    """The last one has a digest at which the registry has a pack with another."""
    answers = {"tags/list": b'{"tags": []}', "manifests/gpucache": reply}
    pack = {f"manifests/sha256:{'0' * 64}": list(_honest().values())[_TAG]}
    with _fake(_told({**_honest(), **answers, **pack})) as url:
        _refuse(url)


def test_an_index_made_by_hand_is_read() -> None:
    """With packs that have no tags."""
    pack = list(_honest().values())[_TAG]
    assert isinstance(pack, bytes)
    digest = _digest(pack)
    answers = {"tags/list": b'{"tags": []}', "manifests/gpucache": _index(digest)}
    with _fake(_told({**_honest(), **answers, f"manifests/{digest}": pack})) as url:
        assert _contents(url) == {"a": b"one", "b": b"B!"}
        assert _contents(f"{url}@{digest}") == {"a": b"one", "b": b"B!"}


@pytest.mark.parametrize(
    "answers",
    [
        _honest(objects=[("a", 0, 0, 6)]),
        _honest(objects=[("a", 1, 0, 1)]),
        _honest(objects=[("a", 0, -1, 1)]),
        _honest(objects=[("a", 0, 1 << 62, 1 << 62)]),
        _honest(objects=[("../a", 0, 0, 1)]),
        _honest(objects=[("a",)]),
        _honest(objects=[("a", 0, 0, 3, 4)]),
        _honest(objects=[("a", 0, 0, 3, 1, 1 << 40)]),
        _honest(config_type="application/vnd.oci.image.config.v1+json"),
        _honest(config_size=1 << 40),
    ],
)
def test_a_pack_that_is_none_is_refused(answers: Mapping[str, Reply]) -> None:
    """Places outside of a layer, names that leave the store, and other artifacts under our tags."""
    with _fake(_told(answers)) as url, _opened(url) as opened, pytest.raises(RemoteError):
        list(opened.listed(""))


def _refuse(url: str, limits: Limits = _LIMITS) -> str:
    with pytest.raises(RemoteError) as caught, _opened(url, limits) as opened:
        list(opened.read([one.name for one in opened.listed("")], 1 << 20))
    message = caught.value.message
    assert message.isprintable()
    assert "; " in message
    return message


@pytest.mark.parametrize("reply", [_Silent, _Dripping])
def test_a_registry_that_is_too_slow_is_given_up(reply: Reply) -> None:
    """After the time limit for a whole reply."""
    with _fake(_told(dict.fromkeys(_honest(), reply))) as url:
        assert "more time" in _refuse(url, Limits(connect_s=0.2, request_s=0.2, retries=1))


def test_nobody_on_the_port_is_one_sentence() -> None:
    """Only the innermost message of the system is shown."""
    message = _refuse(f"oci://127.0.0.1:{free_port()}/team/caches")
    assert "Connection refused" in message
    assert len(message) < 200


def test_a_registry_without_tls_elsewhere_is_named_as_such() -> None:
    """Only loopback addresses are used without TLS by default."""
    with _fake(_told(_honest())) as url:
        port = urlsplit(url).port
        assert "oci+http://" in _refuse(f"oci://0.0.0.0:{port}/team/caches")
        assert set(_contents(f"oci+http://0.0.0.0:{port}/team/caches")) == {"a", "b"}


def test_a_token_is_asked_for_with_the_credentials_and_again_when_it_no_longer_serves() -> None:
    """Some registries issue tokens for one action and a few minutes."""
    asked: list[str] = []
    honest = _told(_honest())

    def reply(path: str, headers: Mapping[str, str]) -> Reply:
        if path.startswith("/token"):
            asked.append(headers.get("Authorization", ""))
            return json.dumps({"token": f"t{len(asked)}"}).encode()
        serves = "t1" if path.startswith("tags") else "t2"
        if headers.get("Authorization") != f"Bearer {serves}":
            challenge = f'Bearer realm="http://{headers["Host"]}/token",service="caches",scope="{path}"'
            return _Said(401, {"WWW-Authenticate": challenge})
        return honest(path, headers)

    with _fake(reply) as url:
        _log_in(url, "s3cret")
        assert _contents(url) == {"a": b"one", "b": b"B!"}
    word = b64encode(b"me:s3cret").decode()
    assert asked == [f"Basic {word}"] * 2


def test_credentials_are_not_sent_without_tls() -> None:
    """A registry can name any server for its tokens."""

    def reply(path: str, headers: Mapping[str, str]) -> Reply:
        return _Said(401, {"WWW-Authenticate": 'Bearer realm="ftp://127.0.0.1/token"'})

    with _fake(reply) as url:
        _log_in(url, "s3cret")
        assert "without TLS" in _refuse(url)
