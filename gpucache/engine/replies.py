"""What the caches that a program passes on its way to a compiler reply, ours first.

Owns which caches lie below ours for each implementation, and what each of them can be asked for a
build. What a cache answers is its own to say; must not know its format.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from gpucache.caches.interface import Cache, Wanted
from gpucache.engine.warm.plan import WarmItem
from gpucache.errors import GpucacheError
from gpucache.model import BuildRequest, Toolchain
from gpucache.outcomes import Answer, Hit, Reach, Reply, ReplyState, Served
from gpucache.payload.source import kernel_names

Caches = Callable[[str], Sequence[Cache]]
"""The caches of one system that are here; none where it has none."""
Asked = Callable[[BuildRequest, Toolchain], Wanted]

_KERNELS = 64
_DEVICE = (
    "platform name", "platform vendor", "platform version", "device vendor", "device name",
    "device version", "driver version",
)  # fmt: skip
_TOLD = {
    ("pyopencl", "pocl"): "PyOpenCL leaves PoCL's programs to PoCL's own cache",
    ("pyopencl", "nvidia"): "PyOpenCL leaves NVIDIA's programs to the driver's cache",
}
_BELOW = {
    "pocl": ("pyopencl", "pocl"),
    "intel": ("pyopencl",),
    "nvidia": ("pyopencl", "cuda"),
    "other": ("pyopencl",),
    "nvrtc": ("cuda.core", "cuda"),
}


def replies(answer: Answer, item: WarmItem, caches: Caches) -> tuple[Reply, ...]:
    """Our own reply and those of the caches below, in the order in which a program passes them."""
    hit = isinstance(answer.found, Hit)
    first = Reply("gpucache", ReplyState.ANSWERS if hit else ReplyState.MISSES, _own(answer))
    if item.request is None or item.toolchain is None:
        return (first,)
    return (first, *_below(item.request, item.toolchain, caches, answered=hit))


def _own(answer: Answer) -> str:
    if isinstance(answer.found, Hit):
        return f"hit: {answer.found.key.short}"
    return str(answer.found.verdict)


def _below(request: BuildRequest, toolchain: Toolchain, caches: Caches, *, answered: bool) -> Iterator[Reply]:
    for system in _BELOW.get(toolchain.implementation, ()):
        told = _TOLD.get((system, toolchain.implementation))
        if told is not None:
            yield Reply(system, ReplyState.NOT_ASKED, told)
            continue
        found = _ask(system, request, toolchain, caches(system))
        state = found.state
        if answered and state is ReplyState.ANSWERS:
            state = ReplyState.NOT_ASKED
        answered = answered or found.state is ReplyState.ANSWERS
        yield Reply(system, state, found.detail)


def _ask(system: str, request: BuildRequest, toolchain: Toolchain, caches: Sequence[Cache]) -> Reply:
    reaches: list[Reach] = []
    try:
        wanted = _WANTED[system](request, toolchain)
        reaches = [reach for cache in caches for reach in cache.explain(wanted)]
    except GpucacheError as error:
        return Reply(system, ReplyState.UNKNOWN, str(error))
    if not reaches:
        return Reply(system, ReplyState.MISSES, "nothing of it is on this machine")
    served = [reach for reach in reaches if isinstance(reach.verdict, Served)]
    best = (served or reaches)[0]
    state = ReplyState.ANSWERS if served else _STATES.get(str(best.verdict), ReplyState.MISSES)
    return Reply(system, state, f"{best.verdict}: {best.detail}")


def _pyopencl(request: BuildRequest, toolchain: Toolchain) -> Wanted:
    fields = dict(toolchain.fields)
    return {
        "source": (request.program.source,),
        "options": tuple(option.encode(errors="surrogateescape") for option in request.options),
        "device": tuple(fields.get(label, "").encode(errors="surrogateescape") for label in _DEVICE),
    }


def _pocl(request: BuildRequest, toolchain: Toolchain) -> Wanted:  # noqa: ARG001 - all caches are asked alike
    kernels = tuple(name.encode() for name in islice(kernel_names(request.program.source), _KERNELS))
    sizes = ("x".join(map(str, (*size, 1, 1)[:3])).encode() for size in request.local_sizes)
    return {name: values for name, values in (("kernel", kernels), ("local-size", tuple(sizes))) if values}


def _nothing(request: BuildRequest, toolchain: Toolchain) -> Wanted:  # noqa: ARG001 - all caches are asked alike
    return {}


_WANTED: Mapping[str, Asked] = {
    "pyopencl": _pyopencl,
    "pocl": _pocl,
    "cuda.core": _nothing,
    "cuda": _nothing,
}
_STATES = {
    "opaque-key": ReplyState.UNKNOWN,
    "not-recorded": ReplyState.UNKNOWN,
    "not-consulted": ReplyState.NOT_ASKED,
}
