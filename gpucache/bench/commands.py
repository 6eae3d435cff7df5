"""Starts any command: with empty caches, with full ones, and with the user's own.

Owns the arms of a command: cold starts each with fresh empty directories for every known cache, warm ones
with directories that were filled until nothing new was written, and starts with the user's own caches.
The files that a start wrote are its proof. Must not know which caches exist or how they are redirected.
"""

import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gpucache.answers.bench import Arm, BenchCase, BenchVerdict, Sample, SettleRun
from gpucache.answers.growth import growth
from gpucache.bench.compare import Measured
from gpucache.bench.run import Begun, Planned, Say, start_folder
from gpucache.engine import hidden_caches
from gpucache.engine.hidden_caches import Clues, Homeless, Watched
from gpucache.engine.warm.command import CacheEnvironment, settle
from gpucache.host.process_groups import CommandRun, run_command, run_prepare

PHASE = "run"
_NOTHING_WRITTEN = (
    "the command wrote nothing into any known cache, so cold and warm are the same and have no ratio: it "
    "has no cache, or one that no variable moves; 'gpucache run' caches its OpenCL and NVRTC builds, "
    "as in 'gpucache bench -- gpucache run -- COMMAND'"
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command, its environment, and how it is run."""

    argv: tuple[str, ...]
    around: CacheEnvironment
    timeout_s: float
    prepare: str = ""
    """A shell command to run before every start."""
    same_output: bool = False
    as_is: bool = False

    def plan(self) -> Planned:
        """Plan the one case of a command."""
        redirects = tuple(self.around.variables(Path("DIR")).items())
        case = BenchCase(shlex.join(self.argv), "", BenchVerdict.FAILED, redirects=redirects)
        return Planned(case, self._begin)

    def _begin(self, place: Path, say: Say) -> Begun | str:
        begun_ns = time.time_ns()
        environ = self._environ(place / Arm.WARM)
        primed: list[SettleRun] = []
        for run in settle(lambda: self._run(environ), lambda: self.around.look(environ, private=True)):
            say(f"warming: run {run.number} done")
            primed.append(run)
        if primed[-1].error:
            return f"the first runs failed: {primed[-1].error}"
        say("finding its caches")
        clues = Clues(
            primed[0].cpu_ns, homeless=self._homeless(place), places=self._places(place, begun_ns, environ)
        )
        writing = [run for run in primed if run.growth]
        known = Measured(
            warming_ns=sum(run.duration_ns for run in writing) or None,
            wrote=bool(writing),
            clues=clues,
            no_ratio="" if writing else _NOTHING_WRITTEN,
            same_output=self.same_output,
            against=(Arm.AS_IS,) if self.as_is else (),
            caveats=(
                *_restless(primed),
                *self.around.notes({one.cache for run in writing for one in run.growth}),
                *((hidden_caches.UNTRACED,) if clues.places is None else ()),
            ),
            notes=tuple(_came_to_rest(primed)),
        )
        return Begun(partial(self._start, place), known)

    def _homeless(self, place: Path) -> Homeless | None:
        """A cold start with an empty home directory; None if the command does not run that way."""
        folder = place / "homeless"
        environ = self._environ(folder)
        done = self._run({**environ, **hidden_caches.homeless_environment(folder, self.around.environ)})
        wrote = hidden_caches.homeless_places(folder)
        shutil.rmtree(folder, ignore_errors=True)
        return None if done.error else Homeless(done.cpu_ns, wrote)

    def _places(self, place: Path, begun_ns: int, environ: Mapping[str, str]) -> tuple[str, ...] | None:
        """The caches outside our directories that a warm start reads; None if it cannot be traced."""
        words = (*self.argv, str(Path.cwd()))
        watched = Watched(begun_ns, time.time_ns(), place, self.around.root_of, words)
        return hidden_caches.trace(lambda argv: self._run(environ, argv), self.argv, place / "trace", watched)

    def _start(self, place: Path, arm: str, number: int) -> Sample:
        if arm == Arm.AS_IS:
            return self._sample(arm, self.around.environ)
        with start_folder(place, arm, number) as folder:
            environ = self._environ(folder)
            before = self.around.look(environ, private=True)
            sample = self._sample(arm, environ)
            added = growth(before, self.around.look(environ, private=True))
        return replace(sample, hit=arm == Arm.WARM and not added, growth=added)

    def _sample(self, arm: str, environ: Mapping[str, str]) -> Sample:
        done = self._run(environ)
        return Sample(
            arm, ((PHASE, done.duration_ns),), error=done.error, output=done.output, cpu_ns=done.cpu_ns
        )

    def _environ(self, folder: Path) -> dict[str, str]:
        return {**self.around.environ, **self.around.isolate(folder)}

    def _run(self, environ: Mapping[str, str], argv: tuple[str, ...] = ()) -> CommandRun:
        if self.prepare:
            failed = run_prepare(self.prepare, environ, self.timeout_s)
            if failed:
                return CommandRun(0, failed, "")
        return run_command(argv or self.argv, environ, self.timeout_s)


def _restless(primed: Sequence[SettleRun]) -> Iterator[str]:
    if primed[-1].growth:
        caches = ", ".join(one.cache for one in primed[-1].growth)
        yield f"it never came to rest: run {primed[-1].number} of warming still wrote into {caches}"


def _came_to_rest(primed: Sequence[SettleRun]) -> Iterator[str]:
    writing = [run.number for run in primed if run.growth]
    if writing and not primed[-1].growth:
        yield f"it was fully warm after run {writing[-1]}, as run {primed[-1].number} wrote nothing new"
