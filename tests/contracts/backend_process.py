"""One backend's use of its protocol, reported by a child process as JSON.

The arguments are the prefix of a target, such as ``opencl:pocl``, and an empty directory. Uses a backend as
the rest of the package does: only by the registry and the protocol.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpucache.answers.lookup import Built, Hit, Miss
from gpucache.backends.interface import Backend, load_backend
from gpucache.bench.sources import find_launches, open_session
from gpucache.engine.lookup import get_or_build, look_up
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.stores import Stores
from gpucache.errors import CompileError, GpucacheError
from gpucache.model import Artifact, BuildRequest, Program, Target, Toolchain
from gpucache.store.directory import DirectoryStore

_STACKS = ("pyopencl", "cuda")
_GLOBAL = 'extern "C" __global__ void {}({})'
_KERNEL = {"cuda": _GLOBAL, "hip": _GLOBAL, "opencl": "kernel void {}({})", "c": "void {}({})"}
_BUFFER = {"cuda": "int *out", "hip": "int *out", "opencl": "global int *out", "c": "int *out"}
_VARIABLE = {
    "cuda": "NVRTC_PROBE",
    "hip": "HIPRTC_COMPILE_OPTIONS_APPEND",
    "opencl": "PYOPENCL_BUILD_OPTIONS",
    "c": "CPATH",
}


def _error(run: Callable[[], object]) -> dict[str, Any] | None:
    """The type, text and log of the error that something raises; None if it raises none."""
    try:
        run()
    except GpucacheError as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"kinds": kinds, "text": str(error), "log": getattr(error, "log", "")}
    return None


class _Trial:
    """One backend and one of its targets, and requests for that."""

    def __init__(self, backend: Backend, target: Target, toolchain: Toolchain, folder: Path) -> None:
        self.backend = backend
        self.target = target
        self.toolchain = toolchain
        self.folder = folder

    def source(
        self, name: str = "show", body: str = "*out = VALUE;", begin: str = '#include "value.h"\n'
    ) -> str:
        kernel = _KERNEL[self.backend.name].format(name, _BUFFER[self.backend.name])
        return f"{begin}{kernel} {{ {body} }}\n"

    def headers(self, name: str, value: int = 7) -> str:
        place = self.folder / name
        place.mkdir()
        (place / "value.h").write_text(f"#define VALUE {value}\n", encoding="ascii")
        return str(place)

    def request(
        self, source: str, *dirs: str, name: str = "show", options: tuple[str, ...] = ()
    ) -> BuildRequest:
        program = Program(name, self.backend.language, source.encode())
        kind = self.backend.artifact_kind(self.target)
        return BuildRequest(program, self.target, options, dirs, kind)

    def prepare(
        self,
        request: BuildRequest,
        toolchain: Toolchain | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Prepared:
        return prepare(self.backend, request, toolchain or self.toolchain, {**os.environ, **(environ or {})})

    def compile(self, request: BuildRequest) -> Artifact:
        return self.backend.compile(request, self.prepare(request).compilation)


def _keys(trial: _Trial) -> Iterator[tuple[str, str]]:
    here, elsewhere, changed = trial.headers("here"), trial.headers("elsewhere"), trial.headers("other", 8)
    plain = trial.request(trial.source(), here)
    variable = _VARIABLE[trial.backend.name]
    yield "plain", trial.prepare(plain).key.hex
    yield "same, again", trial.prepare(plain).key.hex
    yield "same, another name", trial.prepare(trial.request(trial.source(), here, name="other")).key.hex
    yield "same, moved", trial.prepare(trial.request(trial.source(), elsewhere)).key.hex
    yield "other source", trial.prepare(trial.request(trial.source(body=";"), here)).key.hex
    yield "other header", trial.prepare(trial.request(trial.source(), changed)).key.hex
    yield "other option", trial.prepare(plain._replace(options=("-DX=1",))).key.hex
    for label, value in trial.toolchain.fields:
        fields = tuple((each, text + "!" * (each == label)) for each, text in trial.toolchain.fields)
        yield f"other {label}: {value}", trial.prepare(plain, trial.toolchain._replace(fields=fields)).key.hex
    value = "-DY" if "OPTIONS" in variable else "/y"
    yield f"other {variable}", trial.prepare(plain, environ={variable: value}).key.hex


def _compiled(trial: _Trial) -> dict[str, Any]:
    request = trial.request(trial.source(), str(trial.folder / "here"))
    artifact = trial.compile(request)
    with ThreadPoolExecutor(2) as pool:
        others = list(pool.map(trial.compile, [request, request]))
    broken = trial.request(trial.source(body="\nundeclared = 1;", begin=""), name="broken program")
    return {
        "kind": [artifact.kind.value, trial.backend.artifact_kind(trial.target).value],
        "bytes": [len(each.payload) for each in (artifact, *others)],
        "took": artifact.compile_ns,
        "broken": _error(lambda: trial.compile(broken)),
    }


def _loaded(trial: _Trial) -> dict[str, Any]:
    request = trial.request(trial.source() + trial.source("other", begin=""), str(trial.folder / "here"))
    artifact = trial.compile(request)
    names: list[str] = []
    error = _error(lambda: names.extend(trial.backend.load(artifact, trial.target)))
    garbage = artifact._replace(payload=b"nobody's format" * 64)
    return {
        "kernels": sorted(names),
        "error": error,
        "garbage": _error(lambda: trial.backend.load(garbage, trial.target)),
    }


def _session(trial: _Trial) -> dict[str, Any]:
    request = trial.request(trial.source(), str(trial.folder / "here"))._replace(local_sizes=((1,),))
    compilation = trial.prepare(request).compilation
    launches = find_launches(trial.backend, request, compilation)
    told: dict[str, Any] = {"launches": [launch.kernel for launch in launches]}
    for way in ("build", "load"):
        session = open_session(trial.backend, trial.target)
        if way == "build":
            session.build(request, compilation)
        loaded = way == "build" or session.load(trial.compile(request))
        created = session.create_kernels()
        session.set_arguments(launches)
        told[way] = [loaded, created, session.launch()]
    broken = trial.request(trial.source(body="undeclared = 1;", begin=""))
    session = open_session(trial.backend, trial.target)
    told["broken"] = _error(lambda: session.build(broken, trial.prepare(broken).compilation))
    return told


def _looked_up(trial: _Trial) -> dict[str, Any]:
    """A miss and hits through the engine, and the traces of a failed compile."""
    stores = Stores(user=DirectoryStore(trial.folder / "cache", writable=True))
    prepared = trial.prepare(trial.request(trial.source(), str(trial.folder / "here")))
    asked = []

    def compile_() -> Artifact:
        asked.append(1)
        return trial.backend.compile(prepared.request, prepared.compilation)

    first, second = (get_or_build(stores, prepared, compile_) for _ in range(2))
    assert isinstance(first, Built) and isinstance(second, Hit), (first, second)
    changed = look_up(stores, trial.prepare(prepared.request._replace(options=("-DX=1",))))
    assert isinstance(changed, Miss)
    broken = trial.prepare(trial.request(trial.source(body="undeclared = 1;", begin="")))
    failed = _error(
        lambda: get_or_build(
            stores, broken, lambda: trial.backend.compile(broken.request, broken.compilation)
        )
    )
    hit = first.artifact._replace(payload=second.payload)
    return {
        "asked": len(asked),
        "note": first.note,
        "same": second.payload == first.artifact.payload and second.key == first.key == prepared.key,
        "head": [second.head.language, second.head.artifact_kind, second.head.target],
        "why": [changed.verdict.value, *(difference.label for difference in changed.differences)],
        "failed": failed,
        "entries": len(list(DirectoryStore(trial.folder / "cache", writable=False).scan())),
        "hit": _error(lambda: trial.backend.load(hit, trial.target)),
    }


def main() -> None:
    begin, folder = sys.argv[1], Path(sys.argv[2])
    name = begin.partition(":")[0]
    backend = load_backend(name)
    say: dict[str, Any] = {"name": backend.name, "suffix": backend.suffix}
    made_up = Toolchain("nvrtc" if name == "cuda" else "intel", (("a", "b"),), ("a",))
    program = Program("p", backend.language, b"")
    backend.plan(BuildRequest(program, Target(name, "x")), made_up, os.environ)
    say["loaded by planning"] = [stack for stack in _STACKS if stack in sys.modules]
    rows = [row for row in backend.devices() if str(row.target).startswith(begin) and row.available]
    usable = [
        row for row in rows if row.target is not None and row.toolchain is not None and _builds(backend, row)
    ]
    target, toolchain = usable[0].target, usable[0].toolchain
    assert target is not None and toolchain is not None
    say["target"] = str(target)
    say["toolchain"] = {
        "as probed": backend.toolchain(target) == toolchain,
        "labels": [label for label, _ in toolchain.fields],
        "identity": list(toolchain.identity),
        "files": [path.is_file() for path in backend.installation(target).files],
        "fields again": backend.installation(target).fields() == backend.installation(target).fields(),
    }
    unknown = Target(name, "nowhere/nothing")
    say["unknown"] = [
        _error(lambda: backend.toolchain(unknown)),
        _error(lambda: open_session(backend, unknown)),
    ]
    variable = _VARIABLE[name]
    say["environment"] = dict(backend.environment(toolchain, {variable: "-DY", "HOME": "/x", "LANG": "C"}))
    trial = _Trial(backend, target, toolchain, folder)
    say["keys"] = dict(_keys(trial))
    say |= {"compiled": _compiled(trial), "loaded": _loaded(trial)}
    say |= {"session": _session(trial), "looked up": _looked_up(trial)}
    say["own files"] = [path for path in backend.own_files(toolchain) if not path.startswith("/")]
    print(json.dumps(say))  # noqa: T201 - the test reads it


def _builds(backend: Backend, row: Any) -> bool:
    """Whether a device compiles at all: a PoCL may not know its processor."""
    begin = _KERNEL[backend.name].format("show", _BUFFER[backend.name])
    program = Program("show", backend.language, f"{begin} {{ }}".encode())
    request = BuildRequest(program, row.target, artifact_kind=backend.artifact_kind(row.target))
    try:
        backend.compile(request, backend.plan(request, row.toolchain, os.environ))
    except CompileError:
        return False
    return True


if __name__ == "__main__":
    main()
