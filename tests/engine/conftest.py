"""Requests made ready as real compilers would have them, stores on disk, and compilers that only count."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpucache.backends.interface import Backend, load_backend
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.stores import Stores
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Program, Target, Toolchain
from gpucache.store.directory import DirectoryStore

SOURCE = b'#include "value.h"\nextern "C" __global__ void show(int *out) { *out = VALUE; }'


@dataclass(slots=True)
class Compiler:
    """Returns one payload with a remark in it, and counts its calls."""

    remark: str = "compiled"
    kind: ArtifactKind = ArtifactKind.PTX
    asked: int = 0
    meanwhile: Callable[[], object] = field(default=lambda: None)
    """A hook that runs during the compile."""

    @property
    def payload(self) -> bytes:
        """Sound PTX, or bytes in a format that no program knows."""
        header = b".version 8.0\n.target sm_90\n" if self.kind is ArtifactKind.PTX else b""
        return header + f"// {self.remark}\n".encode()

    def __call__(self) -> Artifact:
        self.asked += 1
        self.meanwhile()
        return Artifact(self.kind, self.payload, "a log", 5, {"show": "_Z4show"})


def make_ready(
    source: str | bytes = SOURCE,
    *,
    implementation: str = "nvrtc",
    version: str = "1.0",
    device: str = "a device",
    name: str = "show",
    options: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    environ: Mapping[str, str] | None = None,
    local_sizes: Sequence[tuple[int, ...]] = (),
    headers: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    path: Path | None = None,
    cwd: str | Path = "/",
    searches_cwd: bool = False,
) -> Prepared:
    """A request as the compiler of an implementation would get it; nothing is loaded or compiled."""
    backend: Backend = load_backend("cuda" if implementation == "nvrtc" else "opencl")
    target = Target.parse("cuda:compute_90" if implementation == "nvrtc" else f"opencl:{implementation}/cpu")
    data = source.encode() if isinstance(source, str) else source
    request = BuildRequest(
        program=Program(name, backend.language, data, path),
        target=target,
        options=tuple(options),
        include_dirs=tuple(str(directory) for directory in include_dirs),
        artifact_kind=backend.artifact_kind(target),
        name_expressions=tuple(name_expressions),
        local_sizes=tuple(local_sizes),
        headers=tuple(headers),
        cwd=str(cwd),
        searches_cwd=searches_cwd,
    )
    fields = (("device name", device), ("driver version", version))
    return prepare(backend, request, Toolchain(implementation, fields, ("device name",)), environ or {})


@pytest.fixture
def ready() -> Callable[..., Prepared]:
    return make_ready


@pytest.fixture
def compiler() -> type[Compiler]:
    return Compiler


@pytest.fixture
def stores(store: DirectoryStore) -> Stores:
    return Stores(user=store)


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """Writes a directory of headers: ``tree("include", value="7")`` contains ``value.h`` with that value."""

    def write(name: str, *, value: str = "7", file: str = "value.h") -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(f"#define VALUE {value}\n", encoding="ascii")
        return folder

    return write
