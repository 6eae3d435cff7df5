"""``gpucache bench --checks``: what checks inside kernels cost."""

from collections.abc import Sequence

from gpucache.cli.globals import given, leave
from gpucache.cli.machines import machine
from gpucache.errors import ExitCode
from gpucache.model import Language

RUNS = 15


def bench_checks(targets: tuple[str, ...], runs: int | None, timeout: float) -> None:
    """Time the suite that comes with gpucache on each OpenCL device, and leave."""
    from gpucache.bench.checked import BACKEND, CheckedJob, plan_checked, run_checked
    from gpucache.bench.samples import time_checks
    from gpucache.examples import checks_path
    from gpucache.outcomes import PAPER_ASYNC, PAPER_SYNC, CheckedCase, summarise_checked
    from gpucache.render import timings
    from gpucache.render.progress import display
    from gpucache.sources import load_program

    program = load_program(checks_path(), "suite.cl", Language.OPENCL_C)
    jobs = plan_checked(program, machine(None, [BACKEND]).devices, targets, runs or RUNS)
    cases: list[CheckedCase] = []
    with display(quiet=given().quiet or given().json) as bar:

        def running(now: Sequence[CheckedJob]) -> None:
            done = len({case.target for case in cases})
            bar.show(done, len(jobs), ", ".join(str(job.request.target) for job in now))

        for case in run_checked(jobs, time_checks, timeout, running):
            cases.append(case)
    means = summarise_checked(cases)
    given().document("bench", cases, {"means": means, "paper_sync": PAPER_SYNC, "paper_async": PAPER_ASYNC})
    given().show(timings.checks(cases, means))
    leave(ExitCode.FINDINGS if any(case.error for case in cases) else ExitCode.DONE)
