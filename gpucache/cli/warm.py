"""``gpucache warm``: fill the cache before it is needed."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpucache.cli.caches import open_store, require_store
from gpucache.cli.globals import given, global_options, leave
from gpucache.cli.parameters import (
    PART,
    BuildCommand,
    Count,
    Name,
    Named,
    Number,
    PathName,
    StoreName,
    checks_option,
    flag,
    read_programs,
    source_options,
    valued,
)
from gpucache.cli.streams import complain
from gpucache.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gpucache.answers.warm import WarmOutcome
    from gpucache.engine.warm.fleet import Stored
    from gpucache.engine.warm.plan import Progress
    from gpucache.engine.warm.run import Warming
    from gpucache.manifest import ProgramSpec
    from gpucache.model import CacheKey
    from gpucache.settings import Settings

NEXT = (
    "Next: 'gpucache inspect' shows the entries, 'gpucache verify' checks it, "
    "'gpucache bench --example' times it."
)


@click.command(cls=BuildCommand)
@source_options
@checks_option
@valued(
    "--jobs -j",
    "N",
    Count(1, 1024),
    "Number of workers.\fNumber of workers; the default depends on cores and memory.",
)
@valued("--timeout", "S", Number(0.1), "Seconds for each build.", default=300.0, show_default=True)
@flag("--shared", "Make the cache readable by every user, for images.")
@flag("--misses", "What earlier runs missed and did not build.")
@valued(
    "--recording recordings",
    "DIR",
    PathName(file_okay=False),
    "What 'gpucache record -o DIR' wrote; repeatable.",
    multiple=True,
)
@valued(
    "--part",
    "I/N",
    PART,
    "One of N parts, as in a job array.\f"
    "Build one of N parts, as in a job array: 1/N to N/N together build all.",
)
@flag("--check", "Compile nothing; exit 3 if anything would miss.")
@valued(
    "--device-profile profiles",
    "FILE",
    PathName(dir_okay=False),
    "With --check: look up for another machine.\f"
    "With --check: look up for another machine, from a profile written by 'gpucache devices --save'; "
    "with --recording repeatable.",
    multiple=True,
)
@valued(
    "--on",
    "CLUSTER",
    Name(),
    "Build on its workers: dask:ADDRESS, dask:///FILE or mpi.\f"
    "Build on the workers of a Dask scheduler, dask:ADDRESS or dask:///SCHEDULER-FILE, or of mpiexec, mpi; "
    "keep entries here.",
)
@valued(
    "--cache store",
    "URL",
    StoreName(),
    "With --device-profile: look in this store.\f"
    "With --check, --recording and --device-profile: look in this store and not in our own cache.",
)
@flag("--retry", "Retry builds that crashed or timed out before.")
@valued(
    "--into",
    "DIR",
    PathName(file_okay=False),
    "With a command: put its caches below DIR.\f"
    "With a command: put every cache that can be moved below DIR, with gpucache.env to use it.",
)
@global_options
def warm(
    named: Named,
    targets: tuple[str, ...],
    jobs: int | None,
    timeout: float,
    shared: bool,
    misses: bool,
    recordings: tuple[Path, ...],
    part: tuple[int, int] | None,
    check: bool,
    profiles: tuple[Path, ...],
    on: str | None,
    store: str | None,
    retry: bool,
    into: Path | None,
) -> None:
    """Compile sources (.cl, .cu, .hip), directories of them, or a manifest's programs into the cache.

    Without --target, programs are built for the devices of this machine; cuda:sm_90 and hip:gfx90a need
    no GPU. With -- COMMAND the command runs until it adds nothing to any known cache.

    \f
    Each source's own directory is searched for headers, as if given with -I. On Linux, compilers are
    traced; a build that reads a file its key does not cover is not cached.

    --misses builds what programs missed and did not build: if the compiler builds at first launch (PoCL), a
    program only notes its request.

    --recording builds the programs of a recording, each for the device it was built for, or for
    every --target. Their headers are laid out as they were found, so the keys are the program's own.

    Kernels of Triton in a recording are compiled into Triton's own cache (TRITON_CACHE_DIR, or Inductor's
    cache for its kernels), for cuda:sm_N and hip:gfxN targets, without a GPU. That takes the Python that
    recorded them, or python3 in PATH, with the same Triton; it imports the kernels' modules, and runs those
    that Inductor or Helion wrote from the recording, so warm only recordings that you trust. A program that
    defines kernels is imported, too, and should launch them below if __name__ == "__main__". A kernel is
    refused if its source, its constants, its first IR or Triton's whole key differs from the recorded one:
    Triton's key lacks some values that a kernel reads. Functions that a program makes while it runs are left
    out. On another architecture a program may choose kernels that were not recorded.

    --check --recording --device-profile looks up recorded programs for other machines, from these files
    alone. It lists which machines would miss which programs and why, and the commands that build all missing
    entries. A program is looked up for the device that it was recorded for, or for the machine's own devices
    with the same kind of compiler, with the headers and directories as recorded. A machine without such a
    device is skipped. Machines with the same results are one row; -v and --json list each. With --cache only
    that store is searched, by the catalogues that push wrote. Each listed command builds every program of its
    recordings for every target that it names. gpucache-fleet(7) gives many profiles at once.

    --on builds on a cluster's workers, for their devices and with their environment variables; they need the
    same version of gpucache. No shared file system is needed: sources, headers and options are sent, builds
    run in processes of their own, and an entry is checked before it is kept here; 'gpucache push' sends it.
    A build whose worker is lost, or does not answer within --timeout plus 180 seconds, is tried once more. A
    worker that does not answer gets no more builds. Builds that contain the paths of their files fail. The
    workers must be trusted: Dask and mpi4py can run code that a worker sends. Run --on mpi as
    'mpiexec -n N gpucache warm ... --on mpi': rank 0 distributes and stores, the others build. If a rank dies
    the job ends; run it again to continue. (Extras: dask, mpi. The wheel of mpi4py loads Open MPI as Debian
    installs it; with Debian's MPICH, make a link libmpi.so.12 to libmpich.so.12 in a directory of
    LD_LIBRARY_PATH.)

    With -- COMMAND, --root is the command's GPUCACHE_DIR.
    """
    from gpucache.answers import warm as text
    from gpucache.answers.warm import WarmResult, summarise_warm

    if profiles and not check:
        raise UsageError("--device-profile is for another machine, where nothing can be built; add --check")
    if check and (shared or retry or on):
        raise UsageError("--check compiles nothing; leave --shared and --retry out, and --on")
    apart = (named.anything, targets, jobs, shared, misses, recordings, part, check, retry, on, store)
    if _is_command(into, alone=not any(apart)):
        _warm_command(timeout, into)
        return
    _require_fitting(named, recordings, profiles, store, misses=misses)
    settings = given().settings()
    if settings.remote is not None:
        settings = settings._replace(remote=settings.remote._replace(patient=True))
    settings = settings._replace(read_only=True) if check else settings  # a check is not a use of an entry
    with _warming(settings, on, jobs, timeout, check, retry, part or (1, 1), shared=shared) as run:
        if recordings and profiles:
            _check_fleet(run, recordings, profiles, targets, store)
            return
        if misses or recordings:
            outcomes = _warm_missed(run, targets, named.local_sizes) if misses else []
            outcomes += _warm_recordings(run, recordings, targets) if recordings else []
        else:
            outcomes = _warm_programs(run, read_programs(named), targets, next(iter(profiles), None))
    summary = summarise_warm(outcomes)
    given().document("warm", outcomes, summary)
    if part and not outcomes:
        given().say(f"Part {part[0]}/{part[1]} has nothing to build.")
    elif outcomes or not (misses or recordings):
        apart_by = "recorded" if recordings else "key" if misses else "variant"
        given().show(text.warm(outcomes, summary, apart=apart_by, whole=given().whole))
    _complain_of(outcomes)
    if named.example and summary.exit_code is ExitCode.DONE:
        given().say(NEXT)
    unchecked = check and summary.counts[WarmResult.SKIPPED]
    leave(ExitCode.FINDINGS if unchecked and summary.exit_code is ExitCode.DONE else summary.exit_code)


def _warm_command(timeout: float, into: Path | None) -> None:
    from gpucache.answers import bench as text
    from gpucache.caches.known_caches import KnownCaches
    from gpucache.engine.warm.command import MOST_RUNS, warm_command

    around = KnownCaches(given().environment())
    with given().progress() as bar:
        runs, summary = warm_command(
            given().command,
            timeout,
            around,
            into,
            lambda number: bar.show(number - 1, MOST_RUNS, f"run {number}"),
        )
    given().answer("warm", runs, summary, text.settle(runs, summary))
    leave(ExitCode.DONE if summary.settled and not summary.missed else ExitCode.FINDINGS)


def _complain_of(outcomes: "Sequence[WarmOutcome]") -> None:
    from gpucache.answers.warm import WarmResult
    from gpucache.units import printable

    wrong = (WarmResult.FAILED, WarmResult.POISONED, WarmResult.MISSING)
    for outcome in outcomes if given().quiet and not given().json else ():
        if outcome.result in wrong:
            told = f"{outcome.program} for {outcome.target}: {outcome.reason}"
            complain(f"gpucache: {printable(told, None)}")


@contextmanager
def _warming(settings: "Settings", on: str | None, *how: Any, shared: bool = False) -> "Iterator[Warming]":
    """The run as the engine makes it, shown on a bar."""
    from gpucache.assembly import open_store, open_stores
    from gpucache.backends.interface import Backends
    from gpucache.engine.warm.run import Warming

    def progress(now: "Progress") -> None:
        labels = [f"{program} [{variant}]" if variant else program for program, _, variant in now.running]
        bar.show(now.done, now.total, ", ".join(labels) or "waiting for a worker")

    store = partial(open_store, shared=shared)
    stores = partial(open_stores, shared=shared, command="gpucache warm", warn=complain)
    with ExitStack() as ends:
        cluster = None
        if on is not None:
            from gpucache.engine.workers.clusters import open_cluster

            cluster = ends.enter_context(open_cluster(on))
            if cluster is None:  # this process was one of its workers
                leave(ExitCode.DONE)
        bar = ends.enter_context(given().progress())
        yield Warming(settings, store, stores, Backends(), given().say, progress, cluster, *how)


def warm_noted(settings: "Settings", keys: "Collection[CacheKey]", timeout_s: float) -> "list[WarmOutcome]":
    """Warm the requests noted under some keys; raises CacheUnusableError."""
    with _warming(settings, None, None, timeout_s) as run:
        return _warm_missed(run, keys=keys)


def _warm_missed(
    run: "Warming",
    targets: tuple[str, ...] = (),
    local_sizes: tuple[tuple[int, ...], ...] = (),
    keys: "Collection[CacheKey] | None" = None,
) -> "list[WarmOutcome]":
    """Warm requests that were noted; the cache then answers their programs' next start."""
    from gpucache.engine.warm.run import warm_missed

    outcomes, missed, devices = warm_missed(run, targets, local_sizes, keys)
    if any(one.question for one in missed) and not run.check and run.cluster is None:
        from gpucache.serve.foreseen import keep_missed

        keep_missed(run.open_stores(run.settings), missed, devices)
    return outcomes


def _warm_programs(
    run: "Warming",
    specs: "list[ProgramSpec]",
    targets: tuple[str, ...],
    profile: Path | None,
) -> "list[WarmOutcome]":
    """Warm programs that were read; the cache then answers their first start."""
    from gpucache.assembly import remember_targets
    from gpucache.engine.warm.run import warm_programs
    from gpucache.units import format_list

    if given().verbose:
        folders = dict.fromkeys(f"-I {folder}" for spec in specs for folder in spec.include_dirs)
        searched = format_list(list(folders), 4)
        given().say(f"Searching for headers in each source's own directory first: {searched}")
    outcomes, here = warm_programs(run, specs, targets, profile)
    if profile is None and not run.check and run.cluster is None:
        remember_targets(run.settings, here.devices)
        from gpucache.engine.warm.plan import plan_warm
        from gpucache.serve.foreseen import keep_named

        items = plan_warm(specs, here.devices, targets, run.backends)
        keep_named(run.open_stores(run.settings), items, here.devices)
    return outcomes


def _warm_recordings(
    run: "Warming", recordings: Sequence[Path], targets: Sequence[str]
) -> "list[WarmOutcome]":
    """Warm recordings; the cache then answers their programs' first start."""
    from gpucache.engine.warm.run import warm_recordings

    outcomes, found, devices = warm_recordings(run, recordings, targets)
    if not run.check and run.cluster is None:
        from gpucache.serve.foreseen import keep_recorded

        keep_recorded(run.open_stores(run.settings), found, devices, targets)
    return outcomes


def _check_fleet(
    run: "Warming",
    recordings: Sequence[Path],
    profiles: Sequence[Path],
    targets: Sequence[str],
    store: str | None,
) -> None:
    from gpucache.answers.warm import fleet, misses
    from gpucache.engine.warm.fleet import check_fleet

    words = ("--root", given().root or "") if given().root else ()
    stored = None if store is None else _stored(store, run.settings)
    remote = run.settings.remote and run.settings.remote.url
    push = _push(store or remote or "", run.settings.signing_key)
    outcomes, summary = check_fleet(run, recordings, profiles, targets, words, stored, push)
    given().answer("warm", outcomes, summary, fleet(outcomes, summary, whole=given().whole))
    if given().quiet and not given().json:
        for sentence in misses(outcomes, summary):
            complain(f"gpucache: {sentence}")
    leave(summary.exit_code)


def _stored(url: str, settings: "Settings") -> "Stored":
    """The entries of a store that programs would believe; raises UsageError or RemoteError."""
    from gpucache.engine.warm.fleet import Stored
    from gpucache.remote.contents import believed_entries
    from gpucache.remote.signing import read_trusted

    require_store(url)
    trusted = read_trusted(settings.trusted_keys, settings.signing_key)
    with closing(open_store(url)) as objects:
        return Stored.of(objects.url, believed_entries(objects, trusted))


def _push(url: str, key: Path | None) -> tuple[str, ...]:
    """The words of a push to a store, without its credentials; none if it can only be read, or is not a
    store."""
    from gpucache.remote.objects import is_folder, open_objects
    from gpucache.settings import own_key_place

    with suppress(UsageError), closing(open_objects(url)) as objects:
        own = is_folder(objects) or ((place := own_key_place()) and place.exists())
        signs = () if own and not key else ("--key", str(key or "FILE"))
        return ("push", objects.url, *signs) if url and objects.writes else ()
    return ()


def _require_fitting(
    named: Named, recordings: Sequence[Path], profiles: Sequence[Path], store: str | None, *, misses: bool
) -> None:
    """Raise UsageError for ways to name programs and machines that do not go together."""
    if misses and named._replace(local_sizes=()).anything:
        raise UsageError(
            "--misses builds programs as they were requested; leave sources and build options out"
        )
    if misses and profiles:
        raise UsageError("--misses builds the misses of this machine; leave --device-profile out")
    if recordings and named.anything:
        raise UsageError(
            "--recording builds programs as they were recorded; leave sources and build options out"
        )
    if store is not None and not (recordings and profiles):
        raise UsageError("--cache is for checks of other machines; add --recording and --device-profile")
    if len(profiles) > 1 and not recordings:
        raise UsageError("several profiles go with --recording DIR; add it, or name one profile")


def _is_command(into: Path | None, *, alone: bool) -> bool:
    """Whether a command is warmed; raises UsageError for options that do not go together."""
    if given().command and not alone:
        raise UsageError("a command after '--' is warmed alone; leave all but --timeout and --into out")
    if into is not None and not given().command:
        raise UsageError("--into keeps the caches of a command; give one after '--'")
    if into is not None and given().root is not None:
        raise UsageError("--into keeps every cache of a command below DIR, gpucache's too; leave --root out")
    return bool(given().command)
