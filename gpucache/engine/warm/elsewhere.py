"""Builds by the workers of a cluster: a request travels as a recording has it, and its entry comes back.

Owns both ends. At home an item is packed when a worker is free, and the entry that comes back is checked in
full and made again from what this process asked for, before it is published as if it had been compiled here.
On the worker's host a process lays the headers of one job after another out, and compiles in a worker of
``run_isolated``. Jobs and answers are msgpack of fixed types, with a line of a recording and the file of an
entry in them; the parts of a job are its source and headers. Dask and mpi4py pickle these bytes to send them,
so the workers of a cluster must be trusted. Must not know how a cluster is reached.
"""

import os
import platform
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gpucache.answers.lookup import Built, Hit, Miss
from gpucache.backends.interface import load_backend
from gpucache.engine.explain import explain
from gpucache.engine.lookup import changed_headers, entry_of, find, keep
from gpucache.engine.prepare import Prepared, prepare, stamped
from gpucache.engine.recorded_requests import observe
from gpucache.engine.stores import Stores
from gpucache.engine.warm.plan import Named, WarmItem, in_vain, replayed_item
from gpucache.engine.warm.rounds import HOLDS_PLACES, Answer, compile_watched, with_sizes
from gpucache.engine.workers.capacity import memory_share, worker_count
from gpucache.engine.workers.clusters import Cluster, Job, Jobs, Task
from gpucache.engine.workers.pool import Bounds, Died, Done, Failed, run_isolated
from gpucache.errors import CompileError, FormatError, GpucacheError
from gpucache.host.scratch import scratch
from gpucache.model import Artifact, Checks, Device, Target, Toolchain
from gpucache.recording.builds import DamagedLineError, RecordedBuild, Seen, build_line, read_line
from gpucache.recording.builds import Path as TreePath
from gpucache.recording.reading import Replayed
from gpucache.recording.writing import lay_out
from gpucache.store.format import encode, parse_true


@dataclass(frozen=True, slots=True)
class _Job:
    """One build as it travels."""

    line: bytes
    timeout_s: float
    is_late: bool = False
    """Whether its compiler builds late, which a process can do only once."""
    headers: tuple[TreePath, ...] = ()
    """Headers named by hand, as paths in the tree of the job."""
    checks: Checks = Checks.NONE


@dataclass(frozen=True, slots=True)
class _Answer:
    entry: bytes = b""
    located: bool = False
    uncovered: tuple[str, ...] = ()
    refusal: str | None = None
    failed: str = ""
    """Why there is no entry, with the compiler's log or the end of its process."""
    log: str = ""
    died: str = ""
    limit_s: float = 0.0
    place: str = ""
    """Where the headers were laid out, which logs name."""


class _Sent(NamedTuple):
    prepared: Prepared
    miss: Miss
    roots: Sequence[str]
    """The directories of this machine that the tree's directories replace."""
    lock: ExitStack


_JOBS, _ANSWERS = msgspec.msgpack.Decoder(_Job), msgspec.msgpack.Decoder(_Answer)


class Elsewhere:
    """The builds of a run, made by a cluster."""

    def __init__(self, cluster: Cluster, stores: Stores, jobs: int | None) -> None:
        self._cluster, self._jobs = cluster, jobs
        self._stores = stores._replace(remote=None)  # which the run asks, and to which it sends
        self._sent: dict[Named, _Sent] = {}
        self._locked_s: dict[Named, float] = {}
        """When the key of a build was first seen to be locked by another process."""

    def round(
        self,
        pending: Sequence[tuple[WarmItem, Prepared]],
        bounds: Bounds,
        running: Callable[[Sequence[Named]], None],
    ) -> Iterator[tuple[WarmItem, Prepared, Answer]]:
        tasks = [self._task(*pair, bounds.timeout_s) for pair in pending]
        try:
            for (item, prepared), answer in self._cluster.run(
                __name__,
                tasks,
                self._jobs,
                bounds.timeout_s,
                lambda now: running([item.name for item, _ in now]),
            ):
                if sent := self._sent.pop(item.name, None):
                    with sent.lock:
                        answer = self._received(sent, answer) if isinstance(answer, Done) else answer
                yield item, prepared, answer
        finally:
            for sent in self._sent.values():
                sent.lock.close()

    def _task(self, item: WarmItem, prepared: Prepared, timeout_s: float) -> Task[tuple[WarmItem, Prepared]]:
        pack = partial(self._pack, item, prepared, timeout_s)
        toolchain = prepared.compilation.inputs.toolchain
        return Task((item, prepared), prepared.request.target, toolchain, pack)

    def _pack(self, item: WarmItem, prepared: Prepared, timeout_s: float) -> Job | Done[Hit] | Failed | None:
        stores, toolchain = self._stores, prepared.compilation.inputs.toolchain
        backend, environ = load_backend(prepared.request.target.backend), self._cluster.machine.environment
        with ExitStack() as lock:
            if stores.target and not lock.enter_context(stores.target.single_flight(prepared.key, 0)):
                since_s = self._locked_s.setdefault(item.name, time.monotonic())
                if time.monotonic() - since_s < timeout_s / 2:
                    return None  # half of the time may pass while another process builds the same
            found = find(stores, prepared, whole=True)
            if isinstance(found, Hit):
                return Done(found)
            miss = explain(stores, prepared, found)
            try:
                prepared = with_sizes(backend, prepared, found, environ, stores)
                prepared = stamped(prepared, stores)
                job, roots = _packed(prepared, backend.environment(toolchain, environ), timeout_s)
            except (GpucacheError, OSError) as error:
                return Failed(error)
            self._sent[item.name] = _Sent(prepared, miss, roots, lock.pop_all())
            return job

    def _received(self, sent: _Sent, done: Done[Any]) -> Answer:
        prepared, miss, roots, _ = sent
        try:
            answer = _ANSWERS.decode(done.value)
            if answer.died:
                return Died(answer.died, answer.limit_s)
            if answer.failed:
                return Failed(CompileError(answer.failed, _renamed(answer.log, answer.place, roots)))
            artifact = _artifact(prepared, answer)
            artifact = artifact._replace(build_log=_renamed(artifact.build_log, answer.place, roots))
        except msgspec.DecodeError:
            return Failed(GpucacheError("its worker gave an answer that cannot be read"))
        except GpucacheError as error:
            return Failed(error)
        changed = changed_headers(self._stores, prepared)
        built: Built = keep(self._stores, prepared, artifact, miss, changed)
        return Done(built)


def _artifact(prepared: Prepared, answer: _Answer) -> Artifact:
    """The artifact in an answer, if it is what was asked for; raises GpucacheError."""
    if answer.located and prepared.is_bound:
        raise GpucacheError(HOLDS_PLACES)
    key = prepared.located_key if answer.located else prepared.key
    try:
        entry = parse_true(answer.entry, key)
    except FormatError as error:
        raise GpucacheError(f"the entry that its worker made cannot be used: {error}") from None
    kind, head = prepared.request.artifact_kind, entry.head
    artifact = Artifact(
        kind,
        entry.payload,
        entry.detail.build_log,
        head.compile_ns,
        head.lowered_names,
        answer.uncovered,
        answer.refusal,
    )
    if (head.target, head.artifact_kind) != (str(prepared.request.target), kind.value):
        raise GpucacheError("the entry that its worker made is for another target")
    if entry_of(prepared, artifact).key != key:
        raise GpucacheError(HOLDS_PLACES)
    return artifact


def _renamed(log: str, place: str, roots: Sequence[str]) -> str:
    """A worker's log with its directories replaced by the directories of this machine."""
    named = {str(number): root for number, root in enumerate(roots)}
    pattern = rf"{re.escape(place)}/([0-9]+)"
    return re.sub(pattern, lambda found: named.get(found[1], found[0]), log) if place else log


def _packed(
    prepared: Prepared, environment: tuple[tuple[str, str], ...], timeout_s: float
) -> tuple[Job, Sequence[str]]:
    """The job of a build, and the roots of its tree; raises OSError if a file of it is gone."""
    request, done = prepared.request, observe(prepared, environment)
    build, places = done.build, done.places
    roots = next(iter((*places.roots, *(call.roots for call in places.calls))), ())
    headers = (os.path.realpath(os.path.join(request.cwd, name)) for name in request.headers)  # noqa: PTH118
    job = _Job(
        line=build_line(build, Seen(frozenset(("", size) for size in request.local_sizes))),
        timeout_s=timeout_s,
        is_late=prepared.compilation.late,
        headers=tuple(_below(header, roots) for header in headers),
        checks=request.checks,
    )
    return Job(msgspec.msgpack.encode(job), {name: done.contents[name] for name in build.blobs()}), roots


def _below(file: str, roots: Sequence[str]) -> str:
    for number, root in enumerate(roots):
        if file.startswith(f"{root}/"):
            return f"{number}/{file.removeprefix(f'{root}/')}"
    raise GpucacheError(f"the named header {file} cannot be sent; warm it without --on")


class _Laid(NamedTuple):
    """A job whose headers are laid out in a place, until ``ends`` is closed."""

    item: WarmItem
    bounds: Bounds
    place: Path
    ends: ExitStack

    def answer(self, jobs: Jobs, answer: _Answer) -> None:
        jobs.answer(msgspec.msgpack.encode(replace(answer, place=str(self.place))))
        self.ends.close()


def answer_jobs() -> None:
    """In a process on the worker's host: answer jobs until none comes for a while."""
    memory_bytes = memory_share(worker_count(sys.maxsize))
    jobs, usual = Jobs(), Bounds(memory_bytes=memory_bytes, queued=True, watched=True)
    laid = _laid(jobs, usual)
    while laid is not None:
        laid = _answered(jobs, laid, usual)


def _answered(jobs: Jobs, laid: _Laid, usual: Bounds) -> _Laid | None:
    """Answer jobs up to one that needs other limits; returns that job."""
    bounds, items = laid.bounds, deque([laid.item])
    try:
        for _, answer in run_isolated(_built, items, bounds):
            laid.answer(jobs, _told(answer))
            following = _laid(jobs, usual)
            if following is None or following.bounds != bounds:
                return following
            laid = following
            items.append(laid.item)
    except GpucacheError as error:  # no process can be started
        laid.answer(jobs, _told(Failed(error)))
    return _laid(jobs, usual)


def _told(answer: Done[_Answer] | Failed | Died) -> _Answer:
    if isinstance(answer, Done):
        return answer.value
    if isinstance(answer, Died):
        return _Answer(died=answer.reason, limit_s=answer.limit_s)
    error = answer.error
    if isinstance(error, GpucacheError):
        return _Answer(failed=error.message, log=error.log if isinstance(error, CompileError) else "")
    return _Answer(failed=f"its worker on {platform.node()} cannot build it: {error}")


def _laid(jobs: Jobs, usual: Bounds) -> _Laid | None:
    """Refuse jobs up to one that can be built; returns that job."""
    while (taken := jobs.take()) is not None:
        with ExitStack() as ends:
            try:
                place = ends.enter_context(scratch("elsewhere")) / "tree"
                job = _JOBS.decode(taken.data)
                item = _item(job, taken.parts, place)
                if item.skipped:
                    raise GpucacheError(item.skipped)
                bounds = replace(usual, timeout_s=job.timeout_s, fresh=job.is_late)
                return _Laid(item, bounds, place, ends.pop_all())
            except Exception as error:  # whatever is wrong with the job or this host
                jobs.answer(msgspec.msgpack.encode(_told(Failed(error))))
    return None


def _item(job: _Job, contents: Mapping[str, bytes], place: Path) -> WarmItem:
    """The build of a job, with its headers laid out; raises GpucacheError, DamagedLineError and OSError."""
    line = read_line(job.line)
    build = line.build
    if build is None:
        raise DamagedLineError("it has no build")
    if missing := {*build.blobs()} - contents.keys():
        raise GpucacheError(f"its worker received no file {min(missing)[:12]}; warm it again")
    place.mkdir()
    device = _device(build)
    replayed = Replayed(
        build,
        line.seen.sizes,
        contents[build.source],
        lay_out(build, contents.__getitem__, place),
        memory_headers=tuple((name, contents[of]) for name, of in build.memory_headers),
    )
    item = replayed_item(replayed, device, load_backend(device.backend), os.environ)
    if item.request is None:
        return item
    request = item.request._replace(
        artifact_kind=build.artifact_kind,
        headers=tuple(str(place / header) for header in job.headers),
        checks=job.checks,
    )
    return replace(item, request=request)


def _device(build: RecordedBuild) -> Device:
    toolchain = Toolchain(build.implementation, build.toolchain, build.identity)
    target = Target.parse(build.target)
    return Device(target, target.backend, target.name, "", available=True, detail="", toolchain=toolchain)


def _built(item: WarmItem) -> _Answer:
    """In an isolated worker: compile; raises GpucacheError."""
    request, toolchain = item.request, item.toolchain
    if request is None or toolchain is None or item.known is None:
        raise GpucacheError(item.skipped)
    backend = load_backend(request.target.backend)
    prepared = prepare(backend, request, toolchain, os.environ)
    if why := in_vain(item, prepared, item.known.closure):
        raise GpucacheError(why)
    artifact = compile_watched(backend, prepared)
    entry = entry_of(prepared, artifact)
    return _Answer(encode(entry), entry.head.located, artifact.uncovered, artifact.refusal)
