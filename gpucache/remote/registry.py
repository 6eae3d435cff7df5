"""A store in an OCI registry: objects packed into the layers of a few artifacts.

The URL is ``oci://HOST[:PORT]/REPOSITORY[:TAG]``, for HTTPS, or HTTP on a loopback address; ``oci+http://``
is HTTP anywhere. Each ``create`` pushes its objects as *packs*: artifacts whose layers are tar files of up
to 32 MiB, and whose config says where in them each object is. A pack has its own tag,
``TAG-<12 hex of its digest>``, so pushes never conflict; the store is the union of the packs. A reader learns
of packs at its first read, and again when it lists or creates.

TAG itself is an image index, derived from all packs whenever one was written: for each platform an image of
all layers, which also has the tag ``TAG.<architecture>`` for clients that follow no index, then the packs. So
a copy of the index is a store, as is its digest, ``REPOSITORY@sha256:...``, which can only be read. Tags
count before the index, which another writer may have derived from fewer packs; the first writer to a copy
gives its packs their tags. So that the images have few layers, small packs are merged.

Removing an object writes its pack's manifest anew; the registry can free a layer once all of its objects are
removed. Where a registry removes no manifests, a tag is moved to a pack of nothing.

Owns the form of a pack and which bytes of it are requested. Must not know the content of objects.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from hashlib import sha256
from importlib.util import find_spec
from tarfile import PAX_FORMAT, TarInfo
from threading import Lock
from typing import Annotated, Final, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from gpucache.errors import RemoteError, UsageError
from gpucache.remote.connections import is_this_machine, pause_s
from gpucache.remote.objects import (
    MOST_OBJECTS,
    NO_FILES,
    File,
    Files,
    Limits,
    Listed,
    Objects,
    batches,
    in_parallel,
    missing,
    public,
    require_object_name,
    require_removable,
)
from gpucache.remote.registry_client import MOST_JSON_BYTES, RegistryClient, error_of
from gpucache.units import printable

LAYER_BYTES = 32 << 20
"""The size of a layer, unless it is of one object that is larger."""
_PACK_LAYERS = 16
_PACK_OBJECTS = 10_000
_AT_ONCE = 4
_GAP_BYTES = 256 << 10
"""Objects that are not further apart are requested together."""
_MOST_PACKS, _MOST_BYTES = 10_000, 256 << 20
_MOST_PAGES = 1000
_MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"
_ACCEPT = {"Accept": f"{_INDEX_TYPE}, {_MANIFEST_TYPE}"}
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_PACK_TYPE = "application/vnd.gpucache.pack.v1+json"
"""That of a pack's config, so that other tools do not compress its layers as those of an image."""
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
_ARTIFACT_TYPE = "application/vnd.gpucache.store.v1"
_CONTENTS = "org.gpucache.contents"
"""The annotation that lists the systems, targets and compilers of a pack's objects."""
_ARCHITECTURES = ("amd64", "arm64")
"""Those with an image, which is the same but for its config."""
_NO_PLATFORM: Mapping[str, object] = {"architecture": "unknown", "os": "unknown"}
"""That of packs in an index, so that runtimes take none of them."""
_MOST_LAYERS = 40
"""Above so many layers in all packs small ones are merged, down to half of it."""
_BLOCK = 512
_END = bytes(2 * _BLOCK)
_TRIES = 5
_KEEPS = (400, 401, 403, 405, 501)
"""How registries refuse to remove a manifest, by their settings or to users who may only push."""
_UNSURE = (400, 404)
"""How they refuse a manifest whose parts are gone, or at a tag that another writer is writing."""
_FINAL = ("NAME_UNKNOWN", "NAME_INVALID", "UNSUPPORTED")
"""The codes of refusals that another try does not change."""
_DEFAULT_TAG = "gpucache"
_URL = re.compile(
    r"oci(?P<plain>\+http)?://(?P<host>(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?)"
    r"/(?P<repository>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
T = TypeVar("T")
_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _Blob(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The description of a layer or a config in a manifest, or of a manifest in an index."""

    media_type: str
    digest: Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
    size: _Count
    annotations: dict[str, str] = {}
    platform: Mapping[str, object] = {}


class _Manifest(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pack, an image, or an index of them."""

    schema_version: Literal[2]
    media_type: str = ""
    artifact_type: str = ""
    config: _Blob | None = None
    layers: tuple[_Blob, ...] | None = None
    manifests: tuple[_Blob, ...] = ()
    annotations: dict[str, str] = {}


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where an object of a pack is: it may be in two parts, of two files of a layer."""

    name: str
    layer: _Count
    offset: _Count
    size: _Count
    head: _Count = 0
    gap: _Count = 0
    """The bytes between them."""

    @property
    def end(self) -> int:
        return self.offset + self.size + self.gap


class _Config(msgspec.Struct, frozen=True):
    """The config of a pack."""

    written_ns: _Count
    objects: tuple[_Place, ...]
    about: dict[str, int] = {}
    """The number of objects by system, target and compiler."""


_EMPTY = _Config(0, ())


class _TagList(msgspec.Struct, frozen=True):
    """A page of the tags of a repository."""

    tags: tuple[str, ...] | None = None


# Of a type that several threads decode for the first time msgspec crashes.
_TAG_LISTS, _MANIFESTS, _CONFIGS = map(msgspec.json.Decoder, (_TagList, _Manifest, _Config))


class _Pack(NamedTuple):
    tag: str
    blob: _Blob
    layers: tuple[_Blob, ...]
    config: _Config
    read_bytes: int = 0
    """The size of its manifest and its config, which may have more than objects."""

    @property
    def layers_size(self) -> int:
        return sum(one.size for one in self.layers)

    @property
    def age(self) -> tuple[int, str]:
        """The order of packs: if two have an object with one name, the last pack's is used."""
        return self.config.written_ns, self.tag


class _Layer:
    """Objects that become a layer, as files of a tar file."""

    def __init__(self) -> None:
        self.places: list[_Place] = []
        self.parts: list[bytes] = []
        self.size = 0
        self.about: Counter[str] = Counter()

    def add(self, name: str, data: bytes, file: File) -> None:
        if file.about:
            self.about[file.about] += 1
        if not file.head:
            at = self.write(file.path or f"gpucache/{name}", data)
            self.places.append(_Place(name, 0, at, len(data)))
            return
        at = self.write(f"gpucache/{name}", data[: file.head])
        rest = self.write(file.path, data[file.head :])
        self.places.append(_Place(name, 0, at, len(data), file.head, rest - at - file.head))

    def write(self, path: str, data: bytes) -> int:
        """Add a file; returns where its bytes begin."""
        header = TarInfo(path)
        header.size, header.mode = len(data), 0o644
        start = header.tobuf(PAX_FORMAT)
        at = self.size + len(start)
        self.parts += (start, data, bytes(-len(data) % _BLOCK))
        self.size = at + len(data) + len(self.parts[-1])
        return at


class _Span(NamedTuple):
    """Bytes of a layer that are requested together, and the objects in them."""

    layer: _Blob
    start: int
    end: int
    places: list[_Place]


class RegistryObjects(Objects):
    """See ``gpucache.remote.objects.Objects``."""

    served = False

    def __init__(self, url: str, client: RegistryClient, tag: str, digest: str = "") -> None:
        """With a digest, of an index or a pack, the store has only its content and is read-only."""
        self.url = url
        self.writes = not digest
        self._client = client
        self._tag = tag
        self._digest = digest
        self._lock = Lock()
        self._packs: dict[str, _Pack] | None = None
        self._copied: dict[str, str] = {}
        """The digests of packs that only the index names, by the tags that they lack."""
        self._found: dict[str, tuple[_Pack, _Place]] = {}

    def listed(self, prefix: str, expected: int = 0) -> Iterator[Listed]:  # noqa: ARG002 - packs are bounded
        self._refresh()
        for name, (pack, place) in sorted(self._found.items()):
            if name.startswith(prefix):
                yield Listed(name, place.size, pack.config.written_ns)

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        """Objects that are near each other by one request for a range, or for a layer with its digest."""
        if self._packs is None:
            self._refresh()
        wanted: list[tuple[_Blob, _Place]] = []
        for name in names:
            found = self._found.get(require_object_name(name))
            if found is None or found[1].size > limit_bytes:
                yield name, None
                continue
            pack, place = found
            wanted.append((pack.layers[place.layer], place))
        for read in in_parallel(self._read, _spans(wanted), _AT_ONCE):
            yield from read

    def create(
        self, objects: Iterable[tuple[str, bytes]], files: Files = NO_FILES
    ) -> Iterator[tuple[str, bool]]:
        """Packs of the objects that no other pack has; an object exists once its pack does."""
        self._refresh_to_write()
        present: list[str] = []
        layers = in_parallel(self._push_layer, self._layers(objects, files, present), _AT_ONCE)
        for group in batches(layers, _PACK_LAYERS, lambda one: len(one[1].places), _PACK_OBJECTS):
            yield from self._push_layers(group)
        yield from ((name, False) for name in present)

    def replace(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        """A newer pack, before it goes from others; of two writers at once the last one's stays, as
        registries compare nothing."""
        packs = self._refresh_to_write()
        ((_, old),) = self.read([name], LAYER_BYTES)
        layer = _Layer()
        layer.add(name, change(old), File())
        after_ns = self._found[name][0].config.written_ns if name in self._found else 0
        self._push_layers([self._push_layer(layer)], after_ns + 1)
        self._take_out({name}, packs)

    def remove(self, names: Iterable[str]) -> None:
        self._take_out({require_removable(name) for name in names}, self._refresh_to_write())

    def _take_out(self, gone: Set[str], packs: Iterable[_Pack]) -> None:
        """Manifests without the objects, instead of those with them; first the new ones."""
        for pack in packs:
            kept = [place for place in pack.config.objects if place.name not in gone]
            if len(kept) == len(pack.config.objects):
                continue
            if kept:
                numbers = sorted({place.layer for place in kept})
                places = tuple(msgspec.structs.replace(one, layer=numbers.index(one.layer)) for one in kept)
                layers = tuple(pack.layers[number] for number in numbers)
                self._push_pack(layers, msgspec.structs.replace(pack.config, objects=places))
            self._drop(pack)

    def finish(self) -> None:
        """Merge small packs, and derive the index of all; again if another writer came between."""
        packs = self._refresh_to_write()
        if self._merged(packs):
            packs = self._refresh()
        for left in reversed(range(_TRIES)):
            before, written = {pack.blob.digest for pack in packs}, self._put_index(packs, last=not left)
            packs = self._refresh()
            if written and {pack.blob.digest for pack in packs} == before:
                break

    def _put_index(self, packs: Sequence[_Pack], *, last: bool) -> bool:
        """Write the index; whether the registry has all of its packs, which it may require."""
        packs = sorted((pack for pack in packs if pack.layers), key=lambda one: one.age)
        layers = tuple({blob.digest: blob for pack in packs for blob in pack.layers}.values())
        about = _sum(pack.config.about for pack in packs)
        parts = [(pack.blob, _NO_PLATFORM) for pack in packs]
        for number, architecture in enumerate(_ARCHITECTURES):
            platform = {"architecture": architecture, "os": "linux"}
            diffs = [one.digest for one in layers]
            config = {**platform, "config": {}, "rootfs": {"type": "layers", "diff_ids": diffs}}
            blob = self._push_blob(msgspec.json.encode(config), _CONFIG_TYPE)
            image = self._put_image(blob, layers, about, f"{self._tag}.{architecture}")
            parts.insert(number, (image, platform))
        blobs = tuple(msgspec.structs.replace(blob, platform=platform) for blob, platform in parts)
        notes = _notes(about)
        top = _Manifest(2, _INDEX_TYPE, _ARTIFACT_TYPE, manifests=blobs, annotations=notes)
        return self._put_manifest(self._tag, msgspec.json.encode(top), _INDEX_TYPE, once=not last)

    def _merged(self, packs: Sequence[_Pack]) -> bool:
        """Write the layers of small packs as one, if there are many, and remove these; whether there were."""
        small, size = list[_Pack](), 0
        left = sum(len(pack.layers) for pack in packs)
        many = left > _MOST_LAYERS
        for pack in sorted(packs, key=lambda one: one.layers_size):
            size += pack.layers_size
            if not many or left <= _MOST_LAYERS // 2 or size > LAYER_BYTES:
                break
            if pack.layers:
                small.append(pack)
                left -= len(pack.layers)
        if len(small) < 2:
            return False
        layer = _Layer()
        for pack in small:
            for number, blob in enumerate(pack.layers):
                data = self._read_blob(blob)
                if data is None or not data.endswith(_END):
                    return False  # another writer merged it
                layer.places += (
                    msgspec.structs.replace(one, layer=0, offset=one.offset + layer.size)
                    for one in pack.config.objects
                    if one.layer == number and self._found[one.name][0].tag == pack.tag
                )
                layer.parts.append(data.removesuffix(_END))
                layer.size += len(layer.parts[-1])
        blob, _ = self._push_layer(layer)
        written_ns = max(pack.config.written_ns for pack in small)
        about = _sum(pack.config.about for pack in small)
        self._push_pack((blob,), _Config(written_ns, tuple(layer.places), about))
        for pack in small:
            self._drop(pack)
        return True

    def _drop(self, pack: _Pack) -> None:
        """Remove a pack whose objects are in other packs by now."""
        answer = self._client.ask("DELETE", f"manifests/{pack.blob.digest}", (202, 200, 204, 404, *_KEEPS))
        if answer.status in _KEEPS:
            self._push_pack((), _EMPTY, pack.tag)
            return
        with self._lock:
            self._packs = {tag: one for tag, one in (self._packs or {}).items() if tag != pack.tag}
            self._index_packs()

    def close(self) -> None:
        self._client.close()

    def _refresh_to_write(self) -> list[_Pack]:
        """The same, after which every pack has its tag, as the index may be replaced by one of others."""
        if not self.writes:
            raise RemoteError(f"{self.url} has a digest, so it can only be read; name its tag")
        packs = self._refresh()
        for tag, digest in self._copied.items():
            answer = self._client.ask("GET", f"manifests/{digest}", headers=_ACCEPT)
            self._put_manifest(tag, answer.data, _MANIFEST_TYPE)
        self._copied = {}
        return packs

    def _refresh(self) -> list[_Pack]:
        """Learn which packs there are; those whose tags have their digests never change."""
        for _ in range(_TRIES):
            tags = dict.fromkeys(self._tags(), "") if self.writes else {}
            if self._packs is None:
                self._copied = self._indexed(tags)
            named, known = self._copied | tags, self._packs or {}
            new = [pair for pair in named.items() if pair[0] not in known]
            read: list[_Pack] = []
            objects, size = sum(len(pack.config.objects) for pack in known.values()), 0
            for pack in in_parallel(lambda pair: self._read_pack(*pair), new):
                if pack is not None:
                    read.append(pack)
                    objects, size = objects + len(pack.config.objects), size + pack.read_bytes
                if objects > MOST_OBJECTS or size > _MOST_BYTES:
                    raise RemoteError(
                        f"{self.url} has over {MOST_OBJECTS} objects or 256 MiB about them; push elsewhere"
                    )
            with self._lock:
                packs = {tag: pack for tag, pack in known.items() if tag in named}
                self._packs = packs = packs | {pack.tag: pack for pack in read}
                self._copied = {tag: digest for tag, digest in self._copied.items() if tag in packs}
                self._index_packs()
            if self._digest and packs.keys() < named.keys():
                raise RemoteError(f"{self.url} has lost objects that were merged or removed; pin a copy")
            if tags.keys() <= packs.keys():  # else their objects may be in a pack that was merged meanwhile
                break
        return list(packs.values())

    def _indexed(self, tags: Mapping[str, str]) -> dict[str, str]:
        """The digests of the packs that the index names and that have none of these tags, by their tags."""
        at = self._digest or self._tag
        answer = self._client.ask("GET", f"manifests/{at}", (200, 404), headers=_ACCEPT)
        if answer.status == 404:
            return {}
        top = self._parsed(answer.data, _MANIFESTS, at)
        digests = [one.digest for one in top.manifests if one.platform == _NO_PLATFORM]
        if self._digest and not top.manifests:
            digests = [self._digest]
        found = {self._tag_of(digest): digest for digest in digests}
        if not (found or tags) and (top.layers or top.artifact_type != _ARTIFACT_TYPE):
            raise RemoteError(
                f"{self.url} is an image that lacks the packs of a store; copy a store with 'skopeo copy "
                "--all', or name another tag"
            )
        return {tag: digest for tag, digest in found.items() if tag not in tags}

    def _index_packs(self) -> None:
        """Collect the objects of all packs; the caller has the lock."""
        found: dict[str, tuple[_Pack, _Place]] = {}
        for pack in sorted((self._packs or {}).values(), key=lambda one: one.age):
            for place in pack.config.objects:
                found[place.name] = pack, place
        self._found = found

    def _tags(self) -> set[str]:
        """The tags of packs; none of a repository that does not exist."""
        ours, found = re.compile(rf"{re.escape(self._tag)}-[0-9a-f]{{12}}"), set[str]()
        page, began = "tags/list?n=1000", time.monotonic()
        for number in range(_MOST_PAGES):
            if time.monotonic() - began > self._client.request_s + number / 10:
                raise RemoteError(f"{self.url} lists its tags too slowly; check its address and the network")
            answer = self._client.ask("GET", page, (200, 404))
            if answer.status == 404:
                return found
            told = self._parsed(answer.data, _TAG_LISTS)
            found.update(tag for tag in told.tags or () if ours.fullmatch(tag))
            if len(found) > _MOST_PACKS:
                break
            following = self._client.next_page(answer)
            if following is None:
                return found
            page = following
        raise RemoteError(
            f"{self.url} has more than {_MOST_PACKS} packs or tags; push into another repository"
        )

    def _read_pack(self, tag: str, digest: str = "") -> _Pack | None:
        """A pack by its tag, or by a digest that an index has for it; None if it was removed meanwhile.

        Raises RemoteError for anything else.
        """
        answer = self._client.ask("GET", f"manifests/{digest or tag}", (200, 404), headers=_ACCEPT)
        if answer.status == 404:
            return None
        manifest = self._parsed(answer.data, _MANIFESTS, tag)
        blob = _blob_of(answer.data, _MANIFEST_TYPE)
        if manifest.layers == ():
            return _Pack(tag, blob, (), _EMPTY)
        if digest not in ("", blob.digest) or tag != self._tag_of(blob.digest):
            raise self._damaged(tag, "it is not the artifact that its tag names")
        found = manifest.config
        if found is None or found.media_type != _PACK_TYPE or found.size > MOST_JSON_BYTES:
            raise self._damaged(tag, "it is not a pack of gpucache")
        config = self._read_blob(found)
        if config is None:
            return None
        parsed, layers = self._parsed(config, _CONFIGS, tag), manifest.layers or ()
        for place in parsed.objects:
            require_object_name(place.name)
            sizes = [one.size for one in layers[place.layer : place.layer + 1]]
            if not sizes or place.end > sizes[0] or place.head > place.size:
                raise self._damaged(tag, f"{place.name} is outside of its layer")
        return _Pack(tag, blob, layers, parsed, len(answer.data) + len(config))

    def _read(self, span: _Span) -> list[tuple[str, bytes | None]]:
        if span.start == 0 and span.end == span.layer.size:
            data = self._read_blob(span.layer)
        else:
            data = self._read_range(span)
        if data is None:
            return [(place.name, None) for place in span.places]
        return [(place.name, _cut(data, place, place.offset - span.start)) for place in span.places]

    def _read_range(self, span: _Span) -> bytes | None:
        if span.start == span.end:
            return b""
        headers = {"Range": f"bytes={span.start}-{span.end - 1}"}
        most = min(span.layer.size, max(LAYER_BYTES, span.end - span.start))
        path = f"blobs/{span.layer.digest}"
        answer = self._client.ask("GET", path, (200, 206, 404), most, headers=headers)
        if answer.status == 404:
            return None
        data = answer.data if answer.status == 206 else answer.data[span.start : span.end]
        if len(data) != span.end - span.start:
            raise self._client.garbage(f"{span.layer.digest} ended too early")
        return data

    def _read_blob(self, blob: _Blob) -> bytes | None:
        answer = self._client.ask("GET", f"blobs/{blob.digest}", (200, 404), blob.size)
        if answer.status == 404:
            return None
        if _blob_of(answer.data, blob.media_type).digest != blob.digest:
            raise self._client.garbage(f"other bytes than the digest {blob.digest}")
        return answer.data

    def _layers(
        self, objects: Iterable[tuple[str, bytes]], files: Files, present: list[str]
    ) -> Iterator[_Layer]:
        """Put objects that are in no pack into layers; the names of all others go to ``present``."""
        seen: set[str] = set()
        layer = _Layer()
        for name, data in objects:
            file = files.by_name.get(require_object_name(name), File())
            if layer.parts and (layer.size + len(data) > LAYER_BYTES or len(layer.places) == _PACK_OBJECTS):
                yield layer
                layer = _Layer()
            if name not in self._found and name not in seen:
                layer.add(name, data, file)
            else:
                present.append(name)
                if file.path and not file.head:
                    layer.write(file.path, data)
            seen.add(name)
            while files.more:
                layer.write(*files.more.pop())
        if layer.parts:
            yield layer

    def _push_layer(self, layer: _Layer) -> tuple[_Blob, _Layer]:
        """A layer in the registry, and the objects in it without their bytes."""
        blob = self._push_blob(b"".join((*layer.parts, _END)), _LAYER_TYPE)
        layer.parts.clear()
        title = {"org.opencontainers.image.title": f"{blob.digest[7:19]}.tar"}
        return msgspec.structs.replace(blob, annotations=title), layer

    def _push_layers(
        self, layers: Sequence[tuple[_Blob, _Layer]], after_ns: int = 0
    ) -> list[tuple[str, bool]]:
        """A pack of some layers that is younger than at a time; its objects."""
        places = tuple(
            msgspec.structs.replace(one, layer=number)
            for number, (_, layer) in enumerate(layers)
            for one in layer.places
        )
        about = _sum(one.about for _, one in layers)
        config = _Config(max(self._client.now_ns, after_ns), places, about)
        self._push_pack(tuple(blob for blob, _ in layers), config)
        return [(one.name, True) for one in places]

    def _push_pack(self, layers: tuple[_Blob, ...], config: _Config, tag: str = "") -> None:
        blob = self._push_blob(msgspec.json.encode(config), _PACK_TYPE)
        image = self._put_image(blob, layers, config.about, tag)
        made = _Pack(tag or self._tag_of(image.digest), image, layers, config)
        with self._lock:
            self._packs = {**(self._packs or {}), made.tag: made}
            self._index_packs()

    def _put_image(
        self, config: _Blob, layers: tuple[_Blob, ...], about: Mapping[str, int], tag: str
    ) -> _Blob:
        """Write a manifest at a tag, or at one of its digest."""
        made = _Manifest(2, _MANIFEST_TYPE, _ARTIFACT_TYPE, config, layers, annotations=_notes(about))
        data = msgspec.json.encode(made)
        blob = _blob_of(data, _MANIFEST_TYPE)
        self._put_manifest(tag or self._tag_of(blob.digest), data, _MANIFEST_TYPE)
        return blob

    def _tag_of(self, digest: str) -> str:
        return f"{self._tag}-{digest[7:19]}"

    def _put_manifest(self, tag: str, data: bytes, media_type: str, *, once: bool = False) -> bool:
        """Write a manifest or an index; with ``once`` returns whether it was accepted.

        Else a refused one is sent again: some registries read a tag that is not written whole yet.
        """
        headers = {"Content-Type": media_type}
        for tried in range(1 if once else _TRIES):
            accepted = (200, 201, 202, *(_UNSURE if once or tried + 1 < _TRIES else ()))
            answer = self._client.ask("PUT", f"manifests/{tag}", accepted, body=data, headers=headers)
            if error_of(answer)[0] in _FINAL:
                raise self._client.refused(answer)
            if answer.status < 400:
                return True
            time.sleep(pause_s(tried))  # the other writer may wait for its disk or a core
        return False

    def _push_blob(self, data: bytes, media_type: str) -> _Blob:
        """A blob, sent again if it was refused: of two uploads at once some registries mix up the bytes."""
        blob = _blob_of(data, media_type)
        for tried in range(_TRIES):
            if self._client.ask("HEAD", f"blobs/{blob.digest}", (200, 404)).status == 200:
                break
            begun = self._client.ask("POST", "blobs/uploads/", (202,), body=b"")
            place = self._client.address(begun.headers.get("Location", ""), begun.url)
            place += f"{'&' if urlsplit(place).query else '?'}digest={blob.digest}"
            headers, accepted = {"Content-Type": "application/octet-stream"}, (200, 201, 202)
            refused = (400, 404, 416) if tried + 1 < _TRIES else ()
            if self._client.ask("PUT", place, accepted + refused, body=data, headers=headers).status < 400:
                break
            time.sleep(pause_s(tried))
        return blob

    def _parsed(self, data: bytes, decoder: msgspec.json.Decoder[T], tag: str = "") -> T:
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            if tag:
                raise self._damaged(tag, printable(str(error))) from None
            raise self._client.garbage(printable(str(error))) from None

    def _damaged(self, tag: str, told: str) -> RemoteError:
        return RemoteError(f"{self.url} cannot be read (at the tag {tag}: {told}); remove that tag")


def open_url(url: str, limits: Limits) -> RegistryObjects:
    """The store of a URL; connects at the first request."""
    match = _URL.fullmatch(url)
    if match is None:
        raise UsageError(
            f"{public(url)} is not a repository; write oci://HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]"
        )
    if find_spec("oras") is None:
        raise missing("oras", url)
    host = match["host"]
    plain = bool(match["plain"]) or is_this_machine(re.sub(r":[0-9]+$", "", host))
    client = RegistryClient(host, match["repository"], limits, plain=plain)
    return RegistryObjects(url, client, match["tag"] or _DEFAULT_TAG, match["digest"] or "")


def _blob_of(data: bytes, media_type: str) -> _Blob:
    return _Blob(media_type, f"sha256:{sha256(data).hexdigest()}", len(data))


def _notes(about: Mapping[str, int]) -> dict[str, str]:
    return {_CONTENTS: msgspec.json.encode(about, order="sorted").decode()} if about else {}


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return sum(map(Counter, counts), Counter[str]())


def _cut(data: bytes, place: _Place, at: int) -> bytes:
    """The bytes of an object from those at which its first part begins."""
    return data[at : at + place.head] + data[at + place.head + place.gap : at + place.size + place.gap]


def _spans(wanted: Iterable[tuple[_Blob, _Place]]) -> Iterator[_Span]:
    """The objects of each layer in spans of at most ``LAYER_BYTES``, unless one object alone is larger."""
    span: _Span | None = None
    for layer, place in sorted(wanted, key=lambda one: (one[0].digest, one[1].offset)):
        if (
            span
            and layer.digest == span.layer.digest
            and place.offset <= span.end + _GAP_BYTES
            and place.end - span.start <= LAYER_BYTES
        ):
            span.places.append(place)
            span = span._replace(end=max(span.end, place.end))
            continue
        if span:
            yield span
        span = _Span(layer, place.offset, place.end, [place])
    if span:
        yield span
