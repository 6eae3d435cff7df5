"""The library of each store alone: it sends the files that a store lacks under their names, and fetches all.

python -m tests.benchmarks.remote_peers URL send|fetch FOLDER
"""

import os
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

_AT_ONCE = 16
_LAYER_BYTES = 32 << 20
_ENDINGS = (".cubin", ".gpc")
T = TypeVar("T")


class Folder:
    """Copies of files, each renamed into place."""

    def __init__(self, url: str, *, synced: bool = False) -> None:
        self._root = Path(url)
        self._synced = synced

    def send(self, folder: Path) -> None:
        there = {path.name for path in self._root.iterdir()}
        _each(
            lambda path: self.write(self._root / path.name, path.read_bytes()),
            (path for path in _files(folder) if path.name not in there),
        )

    def fetch(self, folder: Path) -> None:
        folder.mkdir()
        _each(lambda path: self.write(folder / path.name, path.read_bytes()), self._root.iterdir())

    def write(self, path: Path, data: bytes) -> None:
        """Write a file under another name, and rename it."""
        partial = path.with_name(f"tmp-{path.name}")
        with partial.open("wb") as file:
            file.write(data)
            if self._synced:
                os.fsync(file.fileno())
        partial.rename(path)


class Bucket:
    """obstore, with one request for each file."""

    def __init__(self, url: str) -> None:
        from obstore.store import S3Store

        self._store = S3Store(url.removeprefix("s3://"), client_options={"allow_http": True})

    def send(self, folder: Path) -> None:
        import obstore

        there = set(self._names())
        _each(
            lambda path: obstore.put(
                self._store, path.name, path.read_bytes(), mode="create", use_multipart=False
            ),
            (path for path in _files(folder) if path.name not in there),
        )

    def fetch(self, folder: Path) -> None:
        import obstore

        writing = Folder(str(folder))
        folder.mkdir()
        _each(
            lambda name: writing.write(folder / name, obstore.get(self._store, name).bytes().to_bytes()),
            self._names(),
        )

    def _names(self) -> Iterator[str]:
        import obstore

        for page in obstore.list(self._store):
            yield from (one["path"] for one in page)


class Registry:
    """oras, with the files of a push in layers of 32 MiB."""

    def __init__(self, url: str) -> None:
        import oras.provider

        self._name = url.removeprefix("oci://")
        self._client = oras.provider.Registry(hostname=self._name.partition("/")[0], insecure=True)

    def send(self, folder: Path) -> None:
        import oras.oci

        there = {name for one in self._manifests() for layer in one["layers"] for name in _names(layer)}
        manifest = oras.oci.NewManifest()
        with tempfile.TemporaryDirectory() as place:
            config = Path(place, "config")
            config.write_bytes(b"{}")
            manifest["config"] = oras.oci.NewLayer(str(config), "application/vnd.oci.empty.v1+json")
            self._upload(config, manifest["config"])
            for number, group in enumerate(
                _layers(path for path in _files(folder) if path.name not in there)
            ):
                layer = Path(place, str(number))
                with tarfile.open(layer, "w") as packed:
                    for path in group:
                        packed.add(path, path.name)
                manifest["layers"].append(
                    oras.oci.NewLayer(str(layer), "application/vnd.oci.image.layer.v1.tar")
                )
                manifest["layers"][-1]["annotations"] = {"names": " ".join(path.name for path in group)}
            _each(
                lambda pair: self._upload(Path(place, str(pair[0])), pair[1]), enumerate(manifest["layers"])
            )
        tag = f"t{len(there)}"
        self._client.upload_manifest(manifest, self._client.get_container(f"{self._name}:{tag}"))

    def fetch(self, folder: Path) -> None:
        folder.mkdir()
        container = self._client.get_container(self._name)

        def unpack(layer: Any) -> None:
            data = self._client.get_blob(container, layer["digest"]).content
            with tarfile.open(fileobj=BytesIO(data)) as packed:
                for one in packed:
                    file = packed.extractfile(one)
                    assert file is not None
                    Folder(str(folder)).write(folder / one.name, file.read())

        _each(unpack, [layer for one in self._manifests() for layer in one["layers"]])

    def _upload(self, path: Path, layer: Any) -> None:
        self._client.upload_blob(str(path), self._client.get_container(self._name), layer)

    def _manifests(self) -> list[Any]:
        try:
            tags = self._client.get_tags(self._name)
        except ValueError:  # nothing was pushed
            return []
        return [self._client.get_manifest(f"{self._name}:{tag}") for tag in tags]


Peer = Folder | Bucket | Registry


def peer_of(url: str, *, synced: bool = False) -> Peer:
    """The library of a store; ``synced`` has each file of a directory on disk before it is renamed."""
    scheme, colon, _ = url.partition("://")
    if not colon:
        return Folder(url, synced=synced)
    kinds: dict[str, type[Bucket | Registry]] = {"s3": Bucket, "oci": Registry}
    return kinds[scheme](url)


def _files(folder: Path) -> list[Path]:
    return [
        Path(place, name) for place, _, names in os.walk(folder) for name in names if name.endswith(_ENDINGS)
    ]


def _layers(paths: Iterable[Path]) -> Iterator[list[Path]]:
    group: list[Path] = []
    for path in paths:
        group.append(path)
        if sum(one.stat().st_size for one in group) > _LAYER_BYTES:
            yield group
            group = []
    if group:
        yield group


def _names(layer: Any) -> list[str]:
    names: str = layer["annotations"]["names"]
    return names.split()


def _each(call: Callable[[T], object], items: Iterable[T]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(call, items):
            pass


if __name__ == "__main__":
    _, _url, _verb, _folder = sys.argv
    getattr(peer_of(_url), _verb)(Path(_folder))
