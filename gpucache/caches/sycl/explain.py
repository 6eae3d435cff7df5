"""Whether a program would be answered from the cache, and if not what is in the way.

Owns the search for the entry that is wanted, or for the nearest one; keeps one candidate, however many
entries there are. Must not change anything.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpucache.caches.sycl import environment, nearness, roots, slots, standing, tree
from gpucache.caches.sycl.environment import Bounds
from gpucache.caches.sycl.naming import Family, Group
from gpucache.caches.sycl.nearness import Distance
from gpucache.caches.sycl.question import WANTED, Question
from gpucache.caches.sycl.standing import Verdicts
from gpucache.errors import FormatError
from gpucache.keys import Difference
from gpucache.outcomes import FindingKind, Location, Reach, Served, Verdict

__all__ = ["WANTED", "explain"]

_HARMLESS = frozenset({FindingKind.ORPHAN})
"""Of what is found on an entry with both files, what does not keep programs from it."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An entry, how far it is from what is wanted, and what keeps programs from it."""

    distance: Distance
    group: Group
    stem: str
    obstacle: str
    written: bool = False
    """A program may be writing it: its lock is young."""

    @property
    def key(self) -> str:
        return self.group.key(self.stem)

    @property
    def rank(self) -> tuple[Distance, bool, str]:
        return self.distance, bool(self.obstacle), self.key


def explain(root: Path, location: Location, bounds: Bounds, question: Question) -> Reach:
    """The answer for one question. Raises nothing."""
    closed = roots.unreadable(root)
    if closed:
        return Reach(location.cache, question.shown, Verdict.NOT_CONSULTED, closed)
    mend = roots.mend(location)
    best = _best(root, question)
    refusal = bounds.refusal(len(question.images)) if question.images is not None else ""
    differing = tuple(_differences(root, question, best)) if best and best.distance.fields else ()
    verdict, detail = _answer(best, question, mend)
    if refusal:
        verdict, detail = Verdict.UNCACHEABLE, refusal
    if not location.enabled:
        verdict, detail = Verdict.NOT_CONSULTED, _not_consulted(location, detail)
    return Reach(location.cache, question.shown, verdict, detail, differing, best.key if best else "")


def _answer(best: _Candidate | None, question: Question, mend: str) -> tuple[Served | Verdict, str]:
    if best is None:
        return Verdict.NEVER_BUILT, "the cache holds no entry of a program; run the program to make one"
    if best.distance.fields:
        return Verdict.KEY_CHANGED, (
            f"no entry has all of it; the nearest, {best.key[:12]}, differs in {best.distance.fields} of "
            f"{_given(question)}"
        )
    if best.written:
        return Verdict.NOT_CONSULTED, f"it is being written, or its writer died: {best.obstacle}"
    if best.obstacle:
        return Verdict.CORRUPT, f"it is present as {best.stem}, but {best.obstacle}; {mend}"
    unasked = f"; {', '.join(question.unasked)} were not asked for" if question.unasked else ""
    return Served.HIT, f"{best.key[:12]} has all of it and programs get to it{unasked}"


def _not_consulted(location: Location, detail: str) -> str:
    off = (environment.PERSISTENT, f"{environment.DIRECTORY} is set but empty")
    told = (problem for problem in location.problems if problem.startswith(off))
    why = next(told, f"{environment.PERSISTENT} is not set to 1; export {environment.PERSISTENT}=1")
    return f"{why} (otherwise: {detail})"


def _given(question: Question) -> str:
    names = question.given
    return f"{len(names)} fields ({', '.join(names)})" if names[1:] else f"1 field ({names[0]})"


def _best(root: Path, question: Question) -> _Candidate | None:
    groups = (item for item in tree.walk(root) if isinstance(item, Group) and item.family is Family.PROGRAM)
    found = (candidate for group in groups for candidate in _of_group(root, group, question))
    return min(found, key=lambda one: one.rank, default=None)


def _of_group(root: Path, group: Group, question: Question) -> Iterator[_Candidate]:
    try:
        with tree.open_group(root, group) as folder:
            listing, verdicts = tree.listing(folder), Verdicts()
            for stem in listing.stems:
                slot = slots.look(folder, group, stem)
                try:
                    shape, read = slots.source_of(folder, slot)
                    differing = nearness.unlike(question, shape, read)
                    distance = nearness.distance(question, shape, read, differing)
                except FormatError:
                    continue  # what cannot be read answers nothing
                found = list(standing.problems(folder, listing, slot, verdicts)) if not differing else []
                away = [one for one in found if one.kind not in _HARMLESS or slot.half]
                # A lock that nobody holds is told by what it does as well, the next problem.
                away.sort(key=lambda one: one.kind is FindingKind.LOCKED)
                obstacle = away[0].detail if away else ""
                written = [one.kind for one in found] == [FindingKind.LOCKED]
                yield _Candidate(distance, group, stem, obstacle, written)
    except OSError:
        return


def _differences(root: Path, question: Question, best: _Candidate) -> Iterator[Difference]:
    try:
        with tree.open_group(root, best.group) as folder:
            shape, read = slots.source_of(folder, slots.look(folder, best.group, best.stem))
            yield from nearness.differences(question, shape, read)
    except (OSError, FormatError):
        return
