"""The results of inspect --why: whether a program would hit in our cache or another one, and if not why."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple

from gpucache.answers.console import Block, Column, Grid, digest, named, one_line, plain
from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.json_keys import Instant, OrNull, json_keys
from gpucache.keys import Difference
from gpucache.model import CacheKey
from gpucache.units import format_ago, format_count, with_ages


class ReplyState(StrEnum):
    """How a cache responds to a program."""

    ANSWERS = "answers"
    MISSES = "misses"
    NOT_ASKED = "not-asked"
    UNKNOWN = "cannot-tell"


class Reply(NamedTuple):
    """A cache that a program passes on its way to the compiler."""

    cache: str
    state: Annotated[ReplyState, "How it responds."]
    detail: Annotated[str, "The same as a sentence."]


@json_keys("key created_ns")
class Build(NamedTuple):
    """An entry that was built."""

    created_ns: Annotated[Instant, "When."]
    key: Annotated[str, "Its key."]


@json_keys(
    "program target variant consulted not_asked=unasked verdict detail differences key nearest written "
    "under_run directory elsewhere=verdict_elsewhere layers=caches"
)
class Answer(NamedTuple):
    """Whether a program would be found, and if not why."""

    program: str
    target: Annotated[OrNull, "The target; null where none could be chosen."]
    variant: Annotated[str, "The difference from the program's other builds, such as T=float."]
    consulted: Annotated[tuple[str, ...], "The roots that were queried, in order."]
    found: Hit | Miss
    written: Annotated[tuple[Build, ...], "The builds of this name for the target, newest first."] = ()
    under_run: Annotated[tuple[Build, ...], "The same for programs that call NVRTC themselves."] = ()
    caches: Annotated[tuple[Reply, ...], "The caches that the program passes: ours comes first."] = ()
    not_asked: tuple[tuple[str, str], ...] = ()
    """Every root that is named and could not be queried, with the reason and the remedy in a sentence."""
    directory: Annotated[str | None, "Where the program is assumed to run, if that matters."] = None
    elsewhere: Hit | Miss | None = None
    """The result in any other directory, if ``directory`` is not None."""

    @property
    def unasked(self) -> tuple[str, ...]:
        """Why a root that is named was not asked, a sentence each."""
        return tuple(sentence for _, sentence in self.not_asked)

    @property
    def verdict(self) -> "Served | Verdict":
        """The result."""
        return self.found.verdict if isinstance(self.found, Miss) else Served.HIT

    @property
    def detail(self) -> str:
        """The verdict as a sentence; empty for a hit."""
        return self.found.detail if isinstance(self.found, Miss) else ""

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The key fields that differ from the nearest entry."""
        return self.found.differences if isinstance(self.found, Miss) else ()

    @property
    def key(self) -> CacheKey | None:
        """The key of the entry that would be used."""
        return self.found.key if isinstance(self.found, Hit) else None

    @property
    def nearest(self) -> CacheKey | None:
        """The key of the entry that differs least."""
        return self.found.nearest if isinstance(self.found, Miss) else None

    @property
    def verdict_elsewhere(self) -> str | None:
        """The verdict for one that runs elsewhere, where directory is not null."""
        return None if self.elsewhere is None else str(self.elsewhere.verdict)

    @property
    def hit(self) -> bool:
        """Whether the program would be found."""
        return isinstance(self.found, Hit)


class Served(StrEnum):
    """The owner would serve an entry."""

    HIT = "hit"
    FALSE_HIT = "false-hit"
    """It would serve an entry that was made from other inputs."""


class Reach(NamedTuple):
    """Whether another system's cache would serve the request of --want."""

    cache: str
    wanted: Annotated[str, "The request, in a few words."]
    verdict: Annotated[Served | Verdict, "The result; a false-hit was made from other inputs."]
    detail: Annotated[str, "The verdict as a sentence."]
    differences: Annotated[
        tuple[Difference, ...], "The differences from the nearest entry: before is stored."
    ] = ()
    nearest: Annotated[OrNull, "The key of the entry that was found, or of the nearest."] = ""

    @property
    def hit(self) -> bool:
        """Whether the request would be served, and rightly."""
        return self.verdict is Served.HIT


_WARMED = (Verdict.NEVER_BUILT, Verdict.KEY_CHANGED, Verdict.EVICTED, Verdict.CORRUPT, Verdict.NOT_RECORDED)


def answers(found: Sequence[Answer], now_ns: int, *, sources: bool = False) -> Iterator[Block]:
    """For each program: whether it would hit; if not, why, with the differing fields and earlier builds.

    With ``sources`` the programs were read from files, which ``warm`` takes as well.
    """
    for one in found:
        yield one_line(named(one.program, one.target, one.variant), "bold")
        unasked = "".join(f"; not {root}" for root, _ in one.not_asked)
        if one.consulted or unasked:  # else the result says why nothing could be queried
            yield plain(f"asked:   {', '.join(one.consulted) or 'no cache at all'}{unasked}")
        if isinstance(one.found, Hit):
            yield plain(f"answer:  hit: {one.found.key.short} in {one.found.store}", "green")
            for _, sentence in one.not_asked:
                yield plain(f"note:    {sentence}", "yellow")
        else:
            yield plain(f"answer:  {with_ages(_brief(one.found), now_ns)}", "yellow")
            yield from _differences(one)
            if one.consulted:  # if nothing was queried, earlier builds are unknown
                yield from _written(one, now_ns)
        if one.under_run:
            yield plain(
                "note:    entries made under 'gpucache run' do not serve library or warm builds; see "
                f"gpucache-keys(7): {_builds(one.under_run, now_ns)}",
                "yellow",
            )
        if one.elsewhere is not None:
            yield plain(
                f"note:    answered for a program that runs in {one.directory}, where its compiler finds "
                f"headers; for one that runs elsewhere, and for warm: {_brief(one.elsewhere)}",
                "yellow",
            )
        yield from _below(one)
        yield ""
    lacking = sum(isinstance(one.found, Miss) and one.found.verdict in _WARMED for one in found)
    if sources and lacking:
        yield f"'gpucache warm' with the same arguments builds {format_count(lacking, 'missing program')}"


def comparison(left: str, right: str, told: Sequence[str]) -> Iterator[Block]:
    yield plain(f"{left[:12]} -> {right[:12]}", "bold")
    for phrase in told or ("nothing: their key fields are the same",):
        yield plain(f"  {phrase}")


def _brief(found: Hit | Miss) -> str:
    return f"hit: {found.key.short}" if isinstance(found, Hit) else f"{found.verdict}: {found.detail}"


def _differences(one: Answer) -> Iterator[Block]:
    if isinstance(one.found, Hit) or not one.found.differences:
        return
    columns = (
        Column("field", lambda item: item.label),
        Column("nearest entry", lambda item: _side(item.apart()[0])),
        Column("now", lambda item: _side(item.apart()[1])),
    )
    yield Grid(columns, one.found.differences)


def _side(value: str | None) -> str:
    return "-" if value is None else digest(value)


def _written(one: Answer, now_ns: int) -> Iterator[Block]:
    yield plain(f"built before for this target: {_builds(one.written, now_ns) or 'nothing'}")


def _builds(built: Sequence[Build], now_ns: int) -> str:
    return ", ".join(f"{key[:12]} ({format_ago(now_ns - when)})" for when, key in built)


def _below(one: Answer) -> Iterator[Block]:
    """The caches below ours, in the order in which the program queries them."""
    below = one.caches[1:]
    if below:
        asked = ", asked where ours misses" if one.hit else ""
        yield plain(f"caches below{asked}:")
    for number, reply in enumerate(below, 1):
        style = "green" if reply.state is ReplyState.ANSWERS else ""
        yield plain(f"  {number}. {reply.cache} {reply.state.replace('-', ' ')}: {reply.detail}", style)


def reaches(found: Sequence[Reach]) -> Iterator[Block]:
    """Whether each cache would serve the program, and if not which field prevents it."""
    for one in found:
        yield plain(f"{one.cache}: {one.wanted}", "bold")
        yield plain(f"{one.verdict}: {one.detail}", "green" if one.verdict is Served.HIT else "yellow")
        if one.nearest:
            label = "entry" if isinstance(one.verdict, Served) else "nearest"
            yield plain(f"  {label}: {one.nearest}")
        for item in one.differences:
            yield plain(f"  {item.label}:")
            for name, value in (("stored", item.left), ("wanted", item.right)):
                yield plain(f"    {name}: {'none' if value is None else value or '(empty)'}")
