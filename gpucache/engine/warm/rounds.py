"""Builds in workers the items that ``warm`` did not find. If a worker dies, its item is tried only once more.

Owns the outcome of each answer, and the poison list. Must not know the work of a worker.

A worker looks for its item once more, explains the miss, builds and publishes.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import time_ns

from gpucache.answers.lookup import Built, Hit, Verdict
from gpucache.answers.warm import WarmOutcome, WarmResult
from gpucache.backends.interface import Backend, load_backend
from gpucache.engine.lookup import LOG_LIMIT, build, find
from gpucache.engine.prepare import Prepared, lacks_kernels, prepare
from gpucache.engine.stores import NoEntry, Stores, record_failure
from gpucache.engine.warm.plan import Build, Job, Named, Progress, WarmItem
from gpucache.engine.workers.pool import Bounds, Died, Done, Failed, run_isolated
from gpucache.errors import CompileError, GpucacheError
from gpucache.model import Artifact, CacheKey
from gpucache.store.interface import Event

HOLDS_PLACES = (
    "the artifact holds the places of its files, so it would hit nowhere else; warm it where it runs"
)
Answer = Done[Hit | Built] | Failed | Died
Engine = Callable[
    [Sequence[tuple[WarmItem, Prepared]], Bounds, Callable[[Sequence[Named]], None]],
    Iterator[tuple[WarmItem, Prepared, Answer]],
]
"""The function that builds the items of a round; it reports now and then which are being built."""


def in_workers(
    pending: Sequence[tuple[WarmItem, Prepared]],
    stores: Stores,
    engine: Engine,
    bounds: Bounds,
    progress: Callable[[Progress], None],
) -> Iterator[WarmOutcome]:
    """The outcome of each item, as soon as its worker ends."""
    tally = _Tally(len(pending), progress)
    again: list[tuple[WarmItem, Prepared]] = []
    for item, prepared, answer in engine(pending, bounds, tally.running):
        if isinstance(answer, Died):
            again.append((item, prepared))
        else:
            tally.done += 1
            yield _answered(item, prepared, stores, answer)
    for item, prepared, answer in engine(again, bounds, tally.running) if again else ():
        tally.done += 1
        yield _answered(item, prepared, stores, answer)


class _Tally:
    def __init__(self, total: int, progress: Callable[[Progress], None]) -> None:
        self.done, self._total, self._progress = 0, total, progress

    def running(self, now: Sequence[Named]) -> None:
        self._progress(Progress(self.done, self._total, tuple(now)))


def round_here(
    build: Build,
    pending: Sequence[tuple[WarmItem, Prepared]],
    bounds: Bounds,
    running: Callable[[Sequence[Named]], None],
) -> Iterator[tuple[WarmItem, Prepared, Answer]]:
    bounds = replace(bounds, watched=True, queued=True)
    # A compiler that builds late gets the local sizes from a variable that PoCL reads only once in a process,
    # so each of its programs needs its own process.
    for late, own in ((False, bounds), (True, replace(bounds, fresh=True))):
        some = [pair for pair in pending if pair[1].compilation.late is late]
        wait_s = own.timeout_s / 2  # half of the time may pass while another process builds the same
        jobs = [
            _Numbered(index, item.name, Job(one.request, one.compilation.inputs.toolchain, wait_s))
            for index, (item, one) in enumerate(some)
        ]
        if jobs:
            for numbered, answer in run_isolated(
                _Call(build), jobs, own, lambda now: running([one.name for one in now])
            ):
                yield *some[numbered.index], answer


@dataclass(frozen=True, slots=True)
class _Numbered:
    index: int
    name: Named
    job: Job


@dataclass(frozen=True, slots=True)
class _Call:
    build: Build

    def __call__(self, numbered: _Numbered) -> Hit | Built:
        return self.build(numbered.job)


def _answered(item: WarmItem, prepared: Prepared, stores: Stores, answer: Answer) -> WarmOutcome:
    if isinstance(answer, Died) and answer.lost:
        answer = Failed(GpucacheError(f"{answer.reason}, and this was its second try; warm it again"))
    if isinstance(answer, Died):
        retry = "warm --retry" + (" or a longer --timeout" if answer.limit_s else "")
        reason = (
            f"{answer.reason}, twice; it is left out for a week, until its key changes, or {retry} is given"
        )
        if stores.target is not None:
            where = (str(prepared.key), str(prepared.request.target))
            event = Event(time_ns(), "poisoned", *where, why=answer.reason, limit_s=answer.limit_s)
            stores.target.history.record(prepared.request.program.name, event)
        return item.outcome(WarmResult.FAILED, prepared, reason=reason)
    if isinstance(answer, Failed):
        error = answer.error
        if isinstance(error, CompileError) and error.log:
            record_failure(stores, prepared)
        log = error.log[:LOG_LIMIT] if isinstance(error, CompileError) else ""
        reason = str(error) if isinstance(error, OSError) else f"unexpected {error}"
        reason = error.message if isinstance(error, GpucacheError) else reason
        return item.outcome(WarmResult.FAILED, prepared, reason=reason, log=log)
    if isinstance(answer.value, Hit):
        return item.hit(prepared, answer.value)
    built = answer.value
    if built.key is None:
        uncacheable = built.miss.verdict is Verdict.UNCACHEABLE
        reason = built.note if uncacheable else f"it compiled, but {built.note}"
        verdict = built.miss.verdict if uncacheable else None
        return item.outcome(WarmResult.FAILED, prepared, reason=reason, verdict=verdict)
    if item.moved and prepared.is_bound and built.key != prepared.key:
        _remove(stores, built.key)
        return item.outcome(WarmResult.FAILED, prepared, reason=HOLDS_PLACES)
    return item.outcome(
        WarmResult.BUILT,
        key=str(built.key),
        verdict=built.miss.verdict,
        compile_ns=built.artifact.compile_ns,
        reason=built.miss.detail if built.miss.verdict is not Verdict.NEVER_BUILT else "",
        log=built.artifact.build_log[:LOG_LIMIT],
        lacks_kernels=lacks_kernels(prepared, built.artifact.payload),
    )


def _remove(stores: Stores, key: CacheKey) -> None:
    scanned = stores.target.look_at(key) if stores.target is not None else None
    if stores.target is not None and scanned is not None:
        stores.target.remove(scanned, "it contains the places of headers that no longer exist")


def build_job(open_stores: Callable[[], Stores], job: Job) -> Hit | Built:
    """A hit, or a new build; ``open_stores`` opens the stores in the worker."""
    backend = load_backend(job.request.target.backend)
    stores = open_stores()._replace(remote=None)  # which the run asks, and to which it sends
    prepared = prepare(backend, job.request, job.toolchain, os.environ, stores)
    found = find(stores, prepared, whole=True)
    if isinstance(found, Hit):
        return found
    from gpucache.engine.explain import explain  # this module is imported for hits as well

    miss = explain(stores, prepared, found)
    prepared = with_sizes(backend, prepared, found, os.environ, stores)
    return build(stores, prepared, partial(compile_watched, backend, prepared), miss, wait_s=job.wait_s)


def with_sizes(
    backend: Backend, prepared: Prepared, found: NoEntry, environ: Mapping[str, str], stores: Stores
) -> Prepared:
    """A request that also has the local sizes of an existing entry, so that a new build keeps them."""
    if found.incomplete is None:
        return prepared
    request = prepared.request
    sizes = (*found.incomplete.head.local_sizes, *request.local_sizes)
    toolchain = prepared.compilation.inputs.toolchain
    return prepare(backend, request._replace(local_sizes=sizes), toolchain, environ, stores)


def compile_watched(backend: Backend, prepared: Prepared) -> Artifact:
    """Compile, and name the files that were read and that the key does not cover, if opens can be seen."""
    from gpucache.engine.workers.opened_files import OPENED_FILES

    compile_ = partial(backend.compile, prepared.request, prepared.compilation)
    artifact, opened = OPENED_FILES.watch(compile_)
    if opened is None:
        return artifact
    own = partial(backend.own_files, prepared.compilation.inputs.toolchain)
    return artifact._replace(uncovered=uncovered(opened, prepared.closure.files, own))


_KERNEL = ("/proc", "/sys")
"""Most opened files are below these. Their devices are compared, which is faster than comparing paths; in
some sandboxes such a directory is on the device of all other files."""
_SYSTEM = (
    *("/proc/", "/sys/", "/dev/", "/etc/", "/run/", "/var/lib/sss/", "/var/cache/", "/var/db/"),
    *("/usr/share/zoneinfo/", "/usr/lib/os-release"),
)
# Shared objects, which may be linker scripts, and the linker's own scripts; settings next to programs; the
# list of OpenCL drivers; names of devices; locales; Python and the files that it reads at start.
_NAMES = re.compile(
    r".*(\.so(\.[\w.-]+)?|/ldscripts/.*|/bin/[^/]+\.cfg|\.icd|\.ids(\.gz)?"
    r"|/(lib\w*|share)/locale/.*|/gconv-modules(\.cache|\.d/.*)?"
    r"|\.pyc?|\.pth|/pyvenv\.cfg|\.(dist|egg)-info/[^/]+|/openssl\.cnf)",
    re.DOTALL,
)
_BINARIES = (b"\x7fELF", b"!<arch>\n", b"!<thin>\n")
_MAGIC_BYTES = max(map(len, _BINARIES))


def uncovered(
    opened: Iterable[str], covered: Sequence[str], own: Callable[[], Sequence[str]]
) -> tuple[str, ...]:
    """The opened paths of regular files that are not covered, sorted.

    ``own`` returns the compiler's own files; a path that ends in a slash covers everything below it.
    """
    names = frozenset(covered)
    kernel = {Path(place).stat().st_dev for place in _KERNEL if os.path.ismount(place)}
    strange = {
        path: found
        for path in opened
        if path not in names
        and not _NAMES.fullmatch(path)
        and (found := _identity(path))
        and found[0] not in kernel
        and not os.path.realpath(path).startswith(_SYSTEM)
    }
    if not strange:
        return ()
    brought = own()
    folders = tuple(f"{os.path.realpath(path)}/" for path in brought if path.endswith("/"))
    known = {identity for path in (*covered, *brought) if (identity := _identity(path))}
    return tuple(
        path
        for path, identity in sorted(strange.items())
        if identity not in known and not os.path.realpath(path).startswith(folders) and not _is_binary(path)
    )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _is_binary(path: str) -> bool:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(_MAGIC_BYTES).startswith(_BINARIES)
    except OSError:
        return False
