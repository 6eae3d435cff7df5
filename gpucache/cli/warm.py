"""``gpucache warm``: fill the cache before it is needed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucache.cli.globals import given, global_options, leave
from gpucache.cli.machines import machine, machine_for
from gpucache.cli.parameters import (
    BuildCommand,
    Number,
    PathName,
    checks_option,
    profile_option,
    source_options,
)
from gpucache.cli.programs import Named, read_programs
from gpucache.cli.streams import complain
from gpucache.cli.warm_command import warm_command
from gpucache.errors import CacheUnusableError, ExitCode, UsageError

if TYPE_CHECKING:
    from gpucache.answers.console import Display
    from gpucache.answers.warm import WarmOutcome
    from gpucache.engine.warm.plan import Progress, WarmItem
    from gpucache.engine.warm.run import Session
    from gpucache.manifest import ProgramSpec
    from gpucache.model import CacheKey
    from gpucache.settings import Settings
    from gpucache.store.directory import DirectoryStore

_FOR_A_RUN = ("gpucache.engine.warm.run", "gpucache.engine.warm.work", "gpucache.answers.warm")
"""Imported while drivers are probed, which takes as long."""
NEXT = (
    "Next: 'gpucache inspect' shows what is cached, 'gpucache verify' checks it, "
    "'gpucache bench --example' times it."
)


@click.command(cls=BuildCommand)
@source_options
@checks_option
@click.option(
    "--jobs", "-j", metavar="N", type=click.IntRange(1, 1024), help="Workers; default from cores and memory."
)
@click.option(
    "--timeout",
    metavar="S",
    type=Number(0.1),
    default=300.0,
    show_default=True,
    help="Seconds for each item.",
)
@click.option(
    "--shared", is_flag=True, help="Make the cache readable by every user, for images and libraries."
)
@click.option("--misses", is_flag=True, help="Build what programs missed and left to be built later.")
@click.option(
    "--recording",
    metavar="DIR",
    type=PathName(file_okay=False),
    help="Build what 'gpucache record -o DIR' recorded, here or elsewhere.",
)
@click.option("--check", is_flag=True, help="Compile nothing; exit 3 if anything would miss.")
@profile_option
@click.option("--retry", is_flag=True, help="Try items on the poison list again.")
@click.option(
    "--into",
    metavar="DIR",
    type=PathName(file_okay=False),
    help="With a command: keep every cache that can be moved below DIR, with DIR/gpucache.env to use it.",
)
@global_options
def warm(
    named: Named,
    targets: tuple[str, ...],
    jobs: int | None,
    timeout: float,
    shared: bool,
    misses: bool,
    recording: Path | None,
    check: bool,
    profile: Path | None,
    retry: bool,
    into: Path | None,
) -> None:
    """Compile programs into the cache: sources (.cl, .cu), folders of them, or a manifest.

    Without --target, OpenCL programs are built for every OpenCL device here and CUDA programs for
    every CUDA device; a CUDA target such as cuda:sm_90 needs no GPU. What is there already is a
    hit. Each source's own folder is searched for headers, as if given with -I. On Linux it is seen which
    files the compiler opens; nothing is kept of a program that read one which its key does not cover.

    With --misses the programs are those that a library call missed: a compiler that builds late
    (PoCL) is not waited for in the program itself, and what was wanted is noted until it is built here.

    With --recording the programs are those of a recording, each for the device it was built for, or
    for every --target. Their headers are laid out as they were found, so the keys are the program's own.

    With -- COMMAND the command is run until it adds nothing new to any known cache, and what each
    run added is told; --root is then its GPUCACHE_DIR.
    """
    from gpucache.answers import warm as text
    from gpucache.answers.warm import WarmResult, summarise_warm

    if profile is not None and not check:
        raise UsageError(
            "--device-profile is of another machine, for which only --check can answer; add --check"
        )
    apart = (named.anything, targets, jobs, shared, misses, recording, check, retry)
    if _is_command(into, alone=not any(apart)):
        warm_command(timeout, into)
        return
    if check and (shared or retry):
        raise UsageError("--check compiles nothing; leave --shared and --retry out")
    settings = given().settings()
    settings = settings._replace(read_only=True) if check else settings  # a check is not a use of an entry
    run = _Run(settings, jobs, timeout, shared, check, retry)
    if misses:
        _refuse_beside_misses(named, recording, profile)
        outcomes = _warm_misses(run, targets, named.local_sizes)
    elif recording is not None:
        outcomes = _warm_recording(run, recording, named, targets, profile)
    else:
        outcomes = _warm_programs(run, read_programs(named), targets, profile)
    summary = summarise_warm(outcomes)
    given().document("warm", outcomes, summary)
    if outcomes or not (misses or recording):
        apart_by = "key" if misses else "variant" if recording is None else "recorded"
        given().show(text.warm(outcomes, summary, apart=apart_by, whole=given().whole))
    _complain_of(outcomes)
    if named.example and summary.exit_code is ExitCode.DONE:
        given().say(NEXT)
    unchecked = check and summary.counts[WarmResult.SKIPPED]
    leave(ExitCode.FINDINGS if unchecked and summary.exit_code is ExitCode.DONE else summary.exit_code)


def _complain_of(outcomes: "Sequence[WarmOutcome]") -> None:
    """Report failures that no other output reports."""
    from gpucache.answers.warm import WarmResult
    from gpucache.units import printable

    wrong = (WarmResult.FAILED, WarmResult.POISONED, WarmResult.MISSING)
    for outcome in outcomes if given().quiet and not given().json else ():
        if outcome.result in wrong:
            told = f"{outcome.program} for {outcome.target}: {outcome.reason}"
            complain(f"gpucache: {printable(told, None)}")


@dataclass(frozen=True, slots=True)
class _Run:
    """The options of a run, whatever its items are."""

    settings: "Settings"
    jobs: int | None = None
    timeout: float = 300.0
    shared: bool = False
    check: bool = False
    retry: bool = False

    def open(self) -> "DirectoryStore":
        """The cache; raises CacheUnusableError."""
        from gpucache.assembly import open_store

        return open_store(self.settings, shared=self.shared)

    def session(self, environment: Mapping[str, str], bar: "Display") -> "Session":
        """The run as the engine makes it, shown on a bar."""
        from gpucache.assembly import backends, open_layers
        from gpucache.engine.warm.run import Session

        def progress(now: "Progress") -> None:
            labels = [f"{program} [{variant}]" if variant else program for program, _, variant in now.running]
            bar.show(now.done, now.total, ", ".join(labels) or "waiting for a worker")

        opened = partial(open_layers, self.settings, shared=self.shared, command="gpucache warm")
        how = (self.jobs, self.timeout, self.check, self.retry)
        return Session(opened, backends(), environment, progress, *how)

    def outcomes(self, items: "list[WarmItem]", environment: Mapping[str, str]) -> "list[WarmOutcome]":
        """The outcomes of some items, after the root was tried if any of them may be built."""
        if not self.check and any(item.request is not None for item in items):
            self.open().prepare()
        with given().progress() as bar:
            return self.session(environment, bar).outcomes(items)


def _warm_programs(
    run: _Run, specs: "list[ProgramSpec]", targets: tuple[str, ...], profile: Path | None
) -> "list[WarmOutcome]":
    """Warm programs that were read."""
    from gpucache.assembly import backends, remember_targets
    from gpucache.engine.warm.plan import plan_warm
    from gpucache.units import format_list

    _require_root(run)
    here = machine_for(specs, targets, profile, (), lambda: [*map(import_module, _FOR_A_RUN)], run.open())
    items = plan_warm(specs, here.devices, targets, backends())
    if given().verbose:
        folders = dict.fromkeys(f"-I {folder}" for spec in specs for folder in spec.include_dirs)
        searched = format_list(list(folders), 4)
        given().say(f"Searching for headers in each source's own folder first: {searched}")
    outcomes = run.outcomes(items, here.environment)
    if profile is None and not run.check:
        remember_targets(run.settings, here.devices)
    return outcomes


def _refuse_beside_misses(named: Named, recording: Path | None, profile: Path | None) -> None:
    """Raise UsageError for options that do not go together with --misses."""
    if named._replace(local_sizes=()).anything:
        raise UsageError(
            "--misses builds what programs asked for, as they asked; leave sources and build options out"
        )
    if recording is not None:
        raise UsageError("--misses and --recording are two ways to name programs; give one of them")
    if profile is not None:
        raise UsageError("--misses are those of this machine; leave --device-profile out")


def warm_noted(settings: "Settings", keys: "Collection[CacheKey]") -> "list[WarmOutcome]":
    """Warm the requests noted under some keys; raises CacheUnusableError."""
    return _warm_misses(_Run(settings), (), (), keys)


def _warm_misses(
    run: _Run,
    targets: tuple[str, ...],
    local_sizes: tuple[tuple[int, ...], ...],
    keys: "Collection[CacheKey] | None" = None,
) -> "list[WarmOutcome]":
    """Warm the requests that programs noted, or those noted under some keys."""
    from gpucache.engine.targets import select_target
    from gpucache.engine.warm.run import warm_missed

    _require_root(run)
    store = run.open()
    missed = store.missed()
    if not missed:
        given().say(f"No miss is noted in {store.root}.")
        return []
    here = machine(None, sorted({one.request.target.backend for one in missed}), targets=targets)
    chosen = [select_target(target, here.devices).target for target in targets]
    with given().progress() as bar:
        session = run.session(here.environment, bar)
        alone = replace(run, settings=run.settings._replace(system_dirs=())).session(here.environment, bar)
        return warm_missed(session, alone, store, here.devices, chosen, local_sizes, keys)


def _warm_recording(
    run: _Run, folder: Path, named: Named, targets: tuple[str, ...], profile: Path | None
) -> "list[WarmOutcome]":
    """Warm a recording; its headers are laid out for the time of the run."""
    from gpucache.answers.warm import WarmOutcome, WarmResult
    from gpucache.assembly import backends
    from gpucache.engine.warm.plan import plan_recorded
    from gpucache.host.scratch import scratch
    from gpucache.model import Target
    from gpucache.recording.reading import read_recording
    from gpucache.recording.replay import replay
    from gpucache.units import format_count

    if named.anything:
        raise UsageError(
            "--recording builds what was recorded, as it was built there; leave sources and build options out"
        )
    _require_root(run)
    found = read_recording(folder)
    rows = found.recording.rows()
    if failed := sum(seen.failed for _, seen in rows):
        told = format_count(failed, "recorded build", "recorded builds")
        told += " failed in the program itself, and is left out; 'inspect --recording' shows which."
        given().say(told)
    wanted = {Target.parse(text).backend for text in (*targets, *(build.target for build, _ in rows))}
    if not rows and not found.damage:
        given().say(f"The recording {folder} is empty, so there is nothing to build.")
        return []
    here = machine(profile, sorted(wanted & backends().keys()), targets=targets)
    with scratch("replay") as place:
        items = plan_recorded(replay(found, place), here.devices, targets, backends(), here.environment)
        outcomes = run.outcomes(items, here.environment)
    # Damaged parts of a recording cannot be looked up.
    return [WarmOutcome(one.place, "", WarmResult.FAILED, reason=one.why) for one in found.damage] + outcomes


def _is_command(into: Path | None, *, alone: bool) -> bool:
    """Whether a command is warmed; raises UsageError for options that do not go together."""
    if given().command and not alone:
        raise UsageError("a command after '--' is warmed alone; leave all but --timeout and --into out")
    if into is not None and not given().command:
        raise UsageError("--into keeps the caches of a command; give one after '--'")
    if into is not None and given().root is not None:
        raise UsageError("--into keeps every cache of a command below DIR, gpucache's too; leave --root out")
    return bool(given().command)


def _require_root(run: _Run) -> None:
    """Raise CacheUnusableError for an unusable root, before anything else is said."""
    from gpucache.assembly import is_private

    settings = run.settings
    if run.check and settings.root is None and settings.system_dirs:
        return  # a user without a home may still check a shared cache
    run.open()
    if run.check:
        return
    for name, stops in (("GPUCACHE_READ_ONLY", settings.read_only), ("GPUCACHE_DISABLE", settings.disabled)):
        if stops:
            raise CacheUnusableError(
                f"{name} is set, so nothing could be kept; unset it, or ask with --check"
            )
    if run.shared and is_private(settings):
        raise CacheUnusableError(
            f"the cache at {settings.root} is private already, and other users could not read it; "
            "name another --root for --shared"
        )
