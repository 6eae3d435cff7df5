"""``gpucache bench``: start-up with and without the cache."""

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucache.answers.bench import Arm
from gpucache.bench.sessions import PEERS
from gpucache.cli.globals import given, global_options, leave
from gpucache.cli.parameters import (
    BuildCommand,
    Count,
    Named,
    Number,
    PathName,
    flag,
    read_programs,
    require_drawable,
    source_options,
    valued,
    writing,
)
from gpucache.cli.streams import complain
from gpucache.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gpucache.answers.bench import BenchCase
    from gpucache.bench.run import Extent, Planned
    from gpucache.model import Device

PAIRS = 5
_CPUINFO = Path("/proc/cpuinfo")
SAMPLES = 15
AGAINST = (*PEERS, Arm.DRIVER.value)


@click.command(cls=BuildCommand)
@source_options
@valued("--runs", "N", Count(1, 1000), f"Pairs of cold and warm starts; default {PAIRS}.")
@valued(
    "--budget",
    "S",
    Number(0, min_open=True),
    "As many pairs as fit into S seconds.\f"
    "As many pairs as fit into S seconds for each program and target, at least --runs.",
)
@valued("--timeout", "S", Number(0.1), "Seconds for each start.", default=300.0, show_default=True)
@valued(
    "--against",
    "PEER",
    click.Choice(AGAINST),
    f"Time {', '.join(AGAINST[:-1])} or {AGAINST[-1]}, too.\f"
    f"Time another cache in the same run: {', '.join(AGAINST)}; repeatable.",
    multiple=True,
)
@valued(
    "--fail-below",
    "X",
    Number(0, min_open=True),
    "Exit 3 unless every case is X times as fast.\f"
    "Exit 3 unless the low end of every interval is at least X.",
)
@valued(
    "--export file",
    "FILE",
    PathName(dir_okay=False),
    "Also write the results: .json, .md, .png, .svg or .pdf.\f"
    "Also write the results: .json with every sample, .md, or a plot "
    "(.png, .svg, .pdf; needs the extra plot).",
)
@click.option(
    "--prepare",
    metavar="SHELL",
    help="With a command: run this before every start.\f"
    "With a command: run this in a shell before every start, untimed.",
)
@flag("--same-output", "With a command: exit 3 unless all print the same.")
@flag(
    "--checks check_costs",
    "Time checks inside kernels on OpenCL devices.\f"
    "Time the checks inside kernels, with the kernels that come with gpucache, on each OpenCL device; "
    "takes only --target, --runs and --timeout.",
)
@flag("--as-is", "With a command: also time it with your own caches.")
@global_options  # fmt: skip
def bench(
    named: Named,
    targets: tuple[str, ...],
    runs: int | None,
    budget: float | None,
    timeout: float,
    against: tuple[str, ...],
    fail_below: float | None,
    file: Path | None,
    prepare: str | None,
    same_output: bool,
    as_is: bool,
    check_costs: bool,
) -> None:
    """Start each program in fresh processes, cold and warm in turn, and compare the times.

    Cold: empty cache. Warm: full cache. Both are the benchmark's own directories. Each case
    has the median times and their ratio with its 95 % interval. With -- COMMAND the command is timed, with
    every known cache that can be moved in the benchmark's own directories.

    \f
    The same is measured of the part of a start that a cache can change: key, lookup or compile, load, kernels
    and first launch, without the process and the context. With -v each phase is shown, and how far the starts
    differ. Unreliable results are marked degraded, with the reason; fewer than five pairs decide nothing.

    A command is run a few more times, once with an empty home directory and, if strace is installed, once
    under that, to see whether it also caches elsewhere. Ctrl-C shows the results so far.
    """
    if check_costs:
        if named.anything or given().command or budget or against or fail_below or file:
            raise UsageError(
                "--checks times kernels that come with gpucache; leave all but --target, --runs and "
                "--timeout out"
            )
        _checks(targets, runs, timeout)
        return
    if file is not None:
        from gpucache.answers.bench_export import SUFFIXES

        require_drawable("--export", file, SUFFIXES)
    from gpucache.bench.run import Extent

    if given().command:
        _refuse_beside_command(bool(named.anything or targets or against), as_is=as_is)
        from gpucache.bench.run import Command
        from gpucache.caches.known_caches import KnownCaches

        around = KnownCaches(given().environment())
        command = Command(given().command, around, timeout, prepare or "", same_output, as_is)
        _finish(_run([command.plan()], Extent(runs, budget)), fail_below, file, None)
        return
    if prepare or same_output or as_is:
        raise UsageError("--prepare, --same-output and --as-is are for a command; give one after '--'")
    _programs(named, targets, against, Extent(runs, budget), timeout, fail_below, file)


def _checks(targets: tuple[str, ...], runs: int | None, timeout: float) -> None:
    """Time the suite that comes with gpucache on each OpenCL device, and exit."""
    from gpucache.answers import bench as text
    from gpucache.answers.bench import CheckedCase, CheckedSummary, summarise_checked
    from gpucache.bench.check_costs import BACKEND, CheckedJob, plan_checked, run_checked
    from gpucache.bench.sources import time_checks
    from gpucache.engine.machine import find_machine
    from gpucache.examples import checks_path
    from gpucache.model import Language
    from gpucache.sources.disk import load_program

    program = load_program(checks_path(), "suite.cl", Language.OPENCL_C)
    here = find_machine(None, [BACKEND], targets=targets)
    given().say(*here.notes)
    devices = here.devices
    jobs = plan_checked(program, devices, targets, runs or SAMPLES)
    cases: list[CheckedCase] = []
    with given().progress() as bar:

        def running(now: Sequence[CheckedJob]) -> None:
            done = len({case.target for case in cases})
            bar.show(done, len(jobs), ", ".join(str(job.request.target) for job in now))

        for case in run_checked(jobs, time_checks, timeout, running):
            cases.append(case)
    means = summarise_checked(cases)
    given().answer("bench", cases, CheckedSummary(means), text.checks(cases, means))
    leave(ExitCode.FINDINGS if any(case.error for case in cases) else ExitCode.DONE)


def _programs(
    named: Named,
    targets: tuple[str, ...],
    against: tuple[str, ...],
    extent: "Extent",
    timeout: float,
    fail_below: float | None,
    file: Path | None,
) -> None:
    from gpucache.backends.interface import Backends
    from gpucache.bench.sources import Sources
    from gpucache.engine.machine import machine_for
    from gpucache.engine.warm.plan import plan_warm
    from gpucache.engine.workers.pool import Bounds

    specs = read_programs(named)
    here = machine_for(specs, targets)
    given().say(*here.notes)
    devices = here.devices
    items = plan_warm(specs, devices, targets, Backends())
    nothing = bool(items) and all(item.request is None for item in items)
    peers = tuple(dict.fromkeys(against))
    sources = Sources(Bounds(timeout_s=timeout), Backends(), os.environ, peers)
    _finish(
        _run(list(sources.plan(items)), extent), fail_below, file, devices,
        otherwise=ExitCode.NOTHING_ATTEMPTED if nothing else None,
    )  # fmt: skip


def _refuse_beside_command(programs: bool, *, as_is: bool) -> None:
    if programs:
        raise UsageError(
            "a command after '--' is timed alone; leave sources, targets, build options and --against out"
        )
    if given().root is not None and not as_is:
        raise UsageError(
            "a command is timed with every cache in a directory of the benchmark's own; leave --root out, or "
            "add --as-is to time it with that root, too"
        )


def _run(plan: "Sequence[Planned]", extent: "Extent") -> "list[BenchCase]":
    from gpucache.bench.run import run_bench

    cases: list[BenchCase] = []
    with given().progress() as bar:

        def progress(sentence: str) -> None:
            bar.show(len(cases), len(plan), sentence)

        for case in run_bench(plan, extent, progress=progress):
            cases.append(case)
    return cases


def _finish(
    cases: "Sequence[BenchCase]",
    fail_below: float | None,
    file: Path | None,
    devices: "Sequence[Device] | None",
    *,
    otherwise: int | None = None,
) -> None:
    from gpucache.answers import bench as text
    from gpucache.answers.bench import BenchVerdict, summarise_bench
    from gpucache.bench.compare import below

    short = () if fail_below is None else tuple(below(cases, fail_below))
    given().answer(
        "bench", cases, summarise_bench(cases, fail_below, short), text.bench(cases, whole=given().whole)
    )
    if file is not None:
        _export(file, cases, devices)
    for sentence in short:
        complain(f"gpucache: {sentence}")
    if any(case.interrupted for case in cases):
        leave(ExitCode.INTERRUPTED)
    if otherwise is not None:
        leave(otherwise)
    failed = any(case.verdict is BenchVerdict.FAILED for case in cases)
    leave(ExitCode.FINDINGS if failed or short else ExitCode.DONE)


def _export(file: Path, cases: "Sequence[BenchCase]", devices: "Sequence[Device] | None") -> None:
    """Write cases in the format of the file's ending; raises UsageError if it cannot be written."""
    from gpucache.answers.bench_export import export

    if devices is None:
        from gpucache.probe.ask import ask

        devices = ask()
    content = export(file.suffix, cases, _fingerprint(cases, devices))
    with writing(file):
        file.write_bytes(content)
    given().say(f"Written to {file}.")


def _fingerprint(cases: "Sequence[BenchCase]", devices: "Sequence[Device]") -> dict[str, object]:
    """The environment of a run: software, processor, the measured or present targets, redirected caches."""
    from gpucache import __version__

    targets = {case.target for case in cases}
    shown = [device for device in devices if device.present or str(device.target) in targets]
    return {
        "command": ["gpucache", *sys.argv[1:]],
        "gpucache": __version__,
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores",
        "devices": {_label(device): _described(device) for device in shown},
        "toolchains": {_label(one): dict(one.toolchain.fields) for one in shown if one.toolchain},
        "redirects": dict(pair for case in cases for pair in case.redirects),
    }


def _label(device: "Device") -> str:
    return device.name if device.target is None else str(device.target)


def _described(device: "Device") -> str:
    driver = f", driver {device.driver_version}" if device.driver_version else ""
    return f"{device.name}{driver}: {device.detail}"


def _cpu_model() -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
