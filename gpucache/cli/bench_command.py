"""``gpucache bench -- COMMAND``: start-up of any command, cold against warm."""

from typing import TYPE_CHECKING

from gpucache.cli.globals import given

if TYPE_CHECKING:
    from gpucache.outcomes import BenchCase


def bench_command(
    *,
    runs: int,
    budget: float | None,
    timeout: float,
    prepare: str | None,
    same_output: bool,
    as_is: bool,
) -> "BenchCase":
    """The case of the command after ``--``; raises UsageError where it cannot be started."""
    from gpucache.caches.surroundings import KnownCaches
    from gpucache.engine import bench_command as engine
    from gpucache.host.scratch import scratch
    from gpucache.render.progress import display

    plan = engine.CommandPlan(given().command, runs, timeout, prepare or "", same_output, as_is, budget)
    with (
        scratch("bench") as place,
        display(quiet=given().quiet or given().json) as bar,
    ):
        return engine.bench_command(
            plan,
            KnownCaches(given().environment()),
            place,
            lambda sentence: bar.show(0, 1, sentence),
        )
