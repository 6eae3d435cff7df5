"""Recordings of CUDA programs and profiles of machines with GPUs, made without a GPU."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpucache.backends.interface import Backends
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.recorded_requests import observe
from gpucache.model import ArtifactKind, AsAsked, BuildRequest, Device, Language, Program, Target
from gpucache.probe.profile import Profile, save_profile
from gpucache.recording.builds import Seen
from gpucache.recording.writing import Writer


def device_of(target: str, devices: Sequence[Device]) -> Device:
    return next(device for device in devices if str(device.target) == target)


def asked(
    name: str, device: Device, source: str = "", *options: str, folder: str = "/", itself: bool = False
) -> Prepared:
    """A program's request, by the library, or by its compiler ``itself``."""
    text = source or f'extern "C" __global__ void {name}(int *a) {{ *a = 1; }}\n'
    backend = Backends()[device.backend]
    assert device.target is not None and device.toolchain is not None
    kind = backend.artifact_kind(device.target)
    assert isinstance(kind, ArtifactKind)
    program = Program(f"{name}{backend.suffix}", Language(backend.language), text.encode())
    request = BuildRequest(program, device.target, options, artifact_kind=kind, cwd=folder, searches_cwd=True)
    if itself:
        request = request._replace(asked=AsAsked(f"{name}.cu"))
    return prepare(backend, request, device.toolchain, {})


def recorded(place: Path, builds: Iterable[Prepared], *, sources: bool = True) -> Path:
    writer = Writer(place, sources=sources)
    for one in builds:
        done = observe(one, ())
        writer.build(done.build, Seen().union(done.places), done.contents)
    return place


def gpu_machine(
    path: Path, devices: Sequence[Device], *present: str, fields: Mapping[str, str] | None = None
) -> Path:
    """The profile of a machine with NVRTC, some GPUs that are present, and other fields of the toolchain."""
    rows = []
    for device in devices:
        if device.backend == "cuda" and device.toolchain is not None and device.target is not None:
            own = tuple((label, (fields or {}).get(label, value)) for label, value in device.toolchain.fields)
            here = device.target.name in present
            rows.append(device._replace(toolchain=device.toolchain._replace(fields=own), present=here))
    save_profile(path, Profile(tuple(rows), {}))
    return path


def gpus(path: Path, *architectures: str) -> Path:
    """The profile of a machine with these GPUs of NVIDIA's, and without a compiler."""
    rows = (
        Device(Target("cuda", one), "cuda", "GPU", "1", available=True, detail="", present=True)
        for one in architectures
    )
    save_profile(path, Profile(tuple(rows), {}))
    return path


def words(option: str, values: Iterable[os.PathLike[str]]) -> list[str]:
    """An option given for each of some paths."""
    return [word for value in values for word in (option, os.fspath(value))]
