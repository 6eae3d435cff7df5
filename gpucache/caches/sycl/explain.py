"""Whether a program would be answered from the cache, and if not what is in the way.

Owns the search for the entry that is wanted, or for the nearest one; keeps one candidate, however many
entries there are. Must not change anything.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpucache.caches.sycl import question as questions
from gpucache.caches.sycl import slots, standing, tree
from gpucache.caches.sycl.entries import CACHE
from gpucache.caches.sycl.environment import Bounds
from gpucache.caches.sycl.naming import Family, Group
from gpucache.caches.sycl.question import WANTED, Distance, Question
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

    @property
    def key(self) -> str:
        return self.group.key(self.stem)

    @property
    def rank(self) -> tuple[Distance, bool, str]:
        return self.distance, bool(self.obstacle), self.key


def explain(root: Path, location: Location, bounds: Bounds, question: Question) -> Reach:
    """The answer for one question; raises CacheUnusableError for a root that cannot be read."""
    best = _best(root, question)
    refusal = bounds.refusal(len(question.images)) if question.images is not None else ""
    differing = tuple(_differences(root, question, best)) if best and best.distance.fields else ()
    verdict, detail = _answer(best, question)
    if refusal:
        verdict, detail = Verdict.UNCACHEABLE, refusal
    if not location.enabled:
        verdict, detail = Verdict.NOT_CONSULTED, _not_consulted(location, detail)
    return Reach(CACHE, question.shown, verdict, detail, differing, best.key if best else "")


def _answer(best: _Candidate | None, question: Question) -> tuple[Served | Verdict, str]:
    if best is None:
        return Verdict.NEVER_BUILT, "the cache holds no entry of a program; run the program to make one"
    if best.distance.fields:
        return Verdict.KEY_CHANGED, (
            f"no entry has all of it; the nearest, {best.key[:12]}, differs in {best.distance.fields} of "
            f"{_given(question)}"
        )
    if best.obstacle:
        return Verdict.CORRUPT, f"it is present as {best.stem}, but {best.obstacle}; {_MEND}"
    missing = [name for name, value in _fields(question) if value is None]
    unasked = f"; {', '.join(missing)} were not asked for" if missing else ""
    return Served.HIT, f"{best.key[:12]} has all of it and programs get to it{unasked}"


_MEND = "run 'gpucache verify --repair --cache sycl'"


def _not_consulted(location: Location, detail: str) -> str:
    why = next(
        iter(location.problems), "SYCL_CACHE_PERSISTENT is not set to 1; export SYCL_CACHE_PERSISTENT=1"
    )
    return f"{why} (otherwise: {detail})"


def _fields(question: Question) -> tuple[tuple[str, bytes | None], ...]:
    return (
        ("device", question.device),
        ("options", question.options),
        ("spec", question.spec),
        ("image", question.images),
    )


def _given(question: Question) -> str:
    names = [name for name, value in _fields(question) if value is not None]
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
                    differing = questions.unlike(question, shape, read)
                    distance = questions.distance(question, shape, read, differing)
                except FormatError:
                    continue  # what cannot be read answers nothing
                found = standing.problems(folder, listing, slot, verdicts) if not differing else ()
                obstacle = next((detail for kind, detail in found if _keeps_away(kind, slot)), "")
                yield _Candidate(distance, group, stem, obstacle)
    except OSError:
        return


def _keeps_away(kind: FindingKind, slot: slots.Slot) -> bool:
    return kind not in _HARMLESS or bool(slot.half)


def _differences(root: Path, question: Question, best: _Candidate) -> Iterator[Difference]:
    try:
        with tree.open_group(root, best.group) as folder:
            shape, read = slots.source_of(folder, slots.look(folder, best.group, best.stem))
            yield from questions.differences(question, shape, read)
    except (OSError, FormatError):
        return
