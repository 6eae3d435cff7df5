"""Answers to why, as sentences: of our own cache, and of the caches of others."""

from collections.abc import Iterator, Sequence

from gpucache.answers.lookup import Hit, Miss
from gpucache.answers.why import Answer, Build, Reach, ReplyState, Served
from gpucache.render.grid import Block, Column, Grid, digest, one_line, plain
from gpucache.units import format_age


def answers(found: Sequence[Answer], now_ns: int) -> Iterator[Block]:
    """For each program: whether it would hit, and if not why, which fields differ and what was built."""
    for one in found:
        where = f" for {one.target}" if one.target else ""
        variant = f" [{one.variant}]" if one.variant else ""
        yield one_line(f"{one.program}{variant}{where}", "bold")
        unasked = "".join(f"; not {root}" for root, _ in one.not_asked)
        if one.consulted or unasked:  # else the answer says why nothing could be asked
            yield plain(f"asked:   {', '.join(one.consulted) or 'no cache at all'}{unasked}")
        if isinstance(one.found, Hit):
            yield plain(f"answer:  hit: {one.found.key.short} in {one.found.layer}", "green")
            for _, sentence in one.not_asked:
                yield plain(f"note:    {sentence}", "yellow")
        else:
            yield plain(f"answer:  {one.found.verdict}: {one.found.detail}", "yellow")
            yield from _differences(one)
            if one.consulted:  # where nothing was asked, what was built before is not known
                yield from _written(one, now_ns)
        if one.under_run:
            yield plain(
                f"note:    kept for programs that call NVRTC themselves under 'gpucache run', with keys of "
                f"their own: {_builds(one.under_run, now_ns)}; 'gpucache inspect --misses' tells what such "
                "programs missed",
                "yellow",
            )
        if one.elsewhere is not None:
            yield plain(
                f"note:    answered for a program that runs in {one.directory}, where its compiler finds "
                f"headers; for one that runs elsewhere, and for warm: {_brief(one.elsewhere)}",
                "yellow",
            )
        yield from _layers(one)
        yield ""


def comparison(left: str, right: str, told: Sequence[str]) -> Iterator[Block]:
    """What tells two entries apart."""
    yield plain(f"{left[:12]} -> {right[:12]}", "bold")
    for phrase in told or ("nothing: their key fields are the same",):
        yield plain(f"  {phrase}")


def _brief(found: Hit | Miss) -> str:
    return f"hit: {found.key.short}" if isinstance(found, Hit) else f"{found.verdict}: {found.detail}"


def _differences(one: Answer) -> Iterator[Block]:
    if isinstance(one.found, Hit) or not one.found.differences:
        return
    grid = Grid((Column("field"), Column("nearest entry"), Column("now")))
    for item in one.found.differences:
        grid.add(item.label, *("-" if side is None else digest(side) for side in item.apart()))
    yield grid


def _written(one: Answer, now_ns: int) -> Iterator[Block]:
    yield plain(f"built before for this target: {_builds(one.written, now_ns) or 'nothing'}")


def _builds(built: Sequence[Build], now_ns: int) -> str:
    return ", ".join(f"{key[:12]} ({_ago(now_ns - when)})" for when, key in built)


def _layers(one: Answer) -> Iterator[Block]:
    """The caches below ours, in the order in which the program passes them."""
    below = one.layers[1:]
    if below:
        asked = ", asked where ours misses" if one.hit else ""
        yield plain(f"layers below{asked}:")
    for number, layer in enumerate(below, 1):
        style = "green" if layer.state is ReplyState.ANSWERS else ""
        yield plain(f"  {number}. {layer.cache} {layer.state.replace('-', ' ')}: {layer.detail}", style)


def _ago(age_ns: int) -> str:
    age = format_age(age_ns)
    return "just now" if age == "now" else f"{age} ago"


def reaches(found: Sequence[Reach]) -> Iterator[Block]:
    """Whether each cache would answer, and if not which field is in the way."""
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
