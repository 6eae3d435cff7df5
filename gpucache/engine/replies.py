"""What the caches that a program passes on its way to a compiler reply, ours first.

Owns which of them answers first. Whether a cache lies on the way, what it is asked for a build and what it
answers is its own to say; must not know any.
"""

from collections.abc import Callable, Iterator, Sequence

from gpucache.caches.interface import Cache, System
from gpucache.engine.warm.plan import WarmItem
from gpucache.errors import GpucacheError
from gpucache.model import BuildRequest, Toolchain
from gpucache.outcomes import Answer, Hit, Reach, Reply, ReplyState, Served

Caches = Callable[[str], Sequence[Cache]]
"""The caches of one system that are here; none where it has none."""


def replies(answer: Answer, item: WarmItem, systems: Sequence[System], caches: Caches) -> tuple[Reply, ...]:
    """Our own reply and those of the caches below, in the order in which a program passes them."""
    hit = isinstance(answer.found, Hit)
    first = Reply("gpucache", ReplyState.ANSWERS if hit else ReplyState.MISSES, _own(answer))
    if item.request is None or item.toolchain is None:
        return (first,)
    return (first, *_below(item.request, item.toolchain, systems, caches, answered=hit))


def _own(answer: Answer) -> str:
    if isinstance(answer.found, Hit):
        return f"hit: {answer.found.key.short}"
    return str(answer.found.verdict)


def _below(
    request: BuildRequest,
    toolchain: Toolchain,
    systems: Sequence[System],
    caches: Caches,
    *,
    answered: bool,
) -> Iterator[Reply]:
    for system in systems:
        why_not = system.below.get(toolchain.implementation)
        if why_not is None:
            continue
        if why_not:
            yield Reply(system.name, ReplyState.NOT_ASKED, why_not)
            continue
        found = _ask(system, request, toolchain, caches(system.name))
        state = found.state
        if answered and state is ReplyState.ANSWERS:
            state = ReplyState.NOT_ASKED
        answered = answered or found.state is ReplyState.ANSWERS
        yield Reply(system.name, state, found.detail)


def _ask(system: System, request: BuildRequest, toolchain: Toolchain, caches: Sequence[Cache]) -> Reply:
    reaches: list[Reach] = []
    try:
        wanted = system.question(request, toolchain)
        reaches = [reach for cache in caches for reach in cache.explain(wanted)]
    except GpucacheError as error:
        return Reply(system.name, ReplyState.UNKNOWN, str(error))
    if not reaches:
        return Reply(system.name, ReplyState.MISSES, "nothing of it is on this machine")
    served = [reach for reach in reaches if isinstance(reach.verdict, Served)]
    best = (served or reaches)[0]
    state = ReplyState.ANSWERS if served else _STATES.get(str(best.verdict), ReplyState.MISSES)
    return Reply(system.name, state, f"{best.verdict}: {best.detail}")


_STATES = {
    "opaque-key": ReplyState.UNKNOWN,
    "not-recorded": ReplyState.UNKNOWN,
    "not-consulted": ReplyState.NOT_ASKED,
}
