"""Trials of an entry: load it on its device, or compile it again and compare. Always in a child process."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.verify import Checked, Finding
from gpucache.backends.interface import Backend, backend_names, load_backend
from gpucache.caches.interface import OwnRoot
from gpucache.engine.machine import device_of
from gpucache.engine.prepare import prepare, request_of
from gpucache.engine.selection import Opened
from gpucache.engine.verify import Try
from gpucache.engine.warm.plan import Job
from gpucache.engine.workers.pool import Bounds, Died, Done, run_isolated
from gpucache.errors import CompileError, GpucacheError
from gpucache.model import Artifact, BuildRequest, Device, Language, Program, Target
from gpucache.probe.ask import ask

J = TypeVar("J")
R = TypeVar("R")


_ALONE = Bounds(jobs=1, timeout_s=300.0, fresh=True)


def trials(opened: Opened, *, load: bool, rebuild: bool) -> dict[str, list[Try]]:
    """The trials of ``--load`` and ``--rebuild`` for the entries of each root, by the root's path.

    Raises UsageError if other caches were named.
    """
    for option, asked in (("--load", load), ("--rebuild", rebuild)):
        if asked:
            opened.require_own(option)
    devices = ask() if load or rebuild else []
    backends = {name: load_backend(name) for name in backend_names()}
    found: dict[str, list[Try]] = {}
    for root in opened.roots:
        tries: list[Try] = [partial(try_load, root, devices, _load, _load_other)] if load else []
        if rebuild:
            tries.append(partial(try_rebuild, root, devices, backends, os.environ, _rebuild))
        found[root.location().root] = tries
    return found


def try_load(
    cache: OwnRoot,
    devices: Sequence[Device],
    load: Callable[[tuple[Artifact, Target]], tuple[str, ...]],
    load_other: Callable[[Target], object],
    entry: CacheEntry,
) -> Checked:
    """Load an entry on the device of its target; if that fails, try another program with ``load_other``.

    The entry is at fault only if the other one can be loaded: without threads, memory or descriptors a driver
    fails with every binary. Raises WorkersError if no process can be started.
    """
    try:
        device, artifact = device_of(entry, devices), cache.artifact(entry)
        target = device.target if device and device.target else Target.parse(entry.target)
    except (GpucacheError, ValueError) as error:
        return Checked(entry.key, notes=(f"not loaded: {error}",))
    answer = _in_child(load, (artifact, target))
    if isinstance(answer, CompileError | Died):
        other = _in_child(load_other, target)
        if isinstance(other, BaseException | Died):
            why = other.reason if isinstance(other, Died) else str(other).partition("\n")[0]
            return Checked(
                entry.key, unchecked=f"no other program can be loaded for {target} now either: {why}"
            )
        if isinstance(answer, Died):
            return _defective(entry, f"loading it failed: {answer.reason}")
        return _defective(entry, answer.message)
    if isinstance(answer, BaseException):
        return Checked(entry.key, notes=(f"not loaded: {answer}",))
    return Checked(entry.key, passed=("loaded",))


def try_rebuild(
    cache: OwnRoot,
    devices: Sequence[Device],
    backends: Mapping[str, Backend],
    environ: Mapping[str, str],
    compile_: Callable[[Job], Artifact],
    entry: CacheEntry,
) -> Checked:
    """Compile an entry again from its source file, with the same toolchain, and compare the bytes."""
    device = device_of(entry, devices)
    if device is None or device.toolchain is None or device.target is None:
        return Checked(entry.key, notes=("not rebuilt: its target is not on this machine",))
    if device.toolchain.fields != entry.toolchain:
        return Checked(entry.key, notes=("not rebuilt: another toolchain made it",))
    try:
        report, artifact = cache.report(entry), cache.artifact(entry)
        request = request_of(report, device.target)
        prepared = prepare(backends[device.backend], request, device.toolchain, environ)
    except (GpucacheError, ValueError) as error:
        return Checked(entry.key, notes=(f"not rebuilt: {error}",))
    if entry.key not in (str(prepared.key), str(prepared.located_key)):
        return Checked(entry.key, notes=("not rebuilt: its headers or the environment have changed since",))
    compilation = prepared.compilation
    if compilation.differs:
        return Checked(entry.key, notes=(f"not comparable: {compilation.differs}",))
    answer = _in_child(compile_, Job(request, device.toolchain, _ALONE.timeout_s))
    if not isinstance(answer, Artifact):
        why = answer.message if isinstance(answer, GpucacheError) else str(answer)
        why = answer.reason if isinstance(answer, Died) else why
        return Checked(entry.key, notes=(f"not rebuilt: {why}",))
    if answer.payload == artifact.payload:
        return Checked(entry.key, passed=("rebuilt",))
    if compilation.rule.makes_up_folders and prepared.closure.tells_name:
        return Checked(entry.key, notes=("not comparable: it tells the directory of its own build",))
    if why := answer.refusal or compilation.may_differ:
        return Checked(entry.key, notes=(f"not comparable: {why}",))
    return _defective(entry, "compiling it again gives other bytes")


def _defective(entry: CacheEntry, detail: str) -> Checked:
    return Checked(entry.key, (Finding.about(entry, Problem(FindingKind.MISLABELLED, detail)),))


def _in_child(function: Callable[[J], R], item: J) -> R | Died | BaseException:
    for _, answer in run_isolated(function, [item], _ALONE):
        if isinstance(answer, Done):
            return answer.value
        return answer if isinstance(answer, Died) else answer.error
    return Died("the worker gave no result")


def _load(item: tuple[Artifact, Target]) -> tuple[str, ...]:
    artifact, target = item
    return load_backend(target.backend).load(artifact, target)


def _load_other(target: Target) -> tuple[str, ...]:
    backend = load_backend(target.backend)
    kind = "kernel" if backend.language is Language.OPENCL_C else 'extern "C" __global__'
    program = Program("empty", backend.language, f"{kind} void empty() {{}}\n".encode())
    request = BuildRequest(program, target, artifact_kind=backend.artifact_kind(target))
    compilation = backend.plan(request, backend.toolchain(target), os.environ)
    return backend.load(backend.compile(request, compilation), target)


def _rebuild(job: Job) -> Artifact:
    backend = load_backend(job.request.target.backend)
    return backend.compile(job.request, backend.plan(job.request, job.toolchain, os.environ))
