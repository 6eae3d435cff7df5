"""A build that missed: by its compiler, or by PyOpenCL as without gpucache; its publishing and its log.

Imported by the first build that misses.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.backends.opencl import BACKEND, compiler, platforms
from gpucache.backends.opencl.options import for_pyopencl, is_below_run
from gpucache.engine.prepare import Prepared, named
from gpucache.engine.stores import NoEntry, Stores
from gpucache.host.environment import environment
from gpucache.library import outcomes
from gpucache.library.missing import LATER, build, noting_failures, reason
from gpucache.model import Artifact

if TYPE_CHECKING:
    from gpucache.opencl.building import Call

Variables = tuple[tuple[str, str], ...]


def answer_miss(
    stores: Stores, prepared: Sequence[Prepared], met: Sequence[Hit | NoEntry], call: "Call"
) -> Any:
    """Compile the program, as the entry of a device is missing, and store the result."""
    prepared = list(map(_named, call.devices, prepared))
    missed = {
        number: reason(stores, one, answer)
        for number, (one, answer) in enumerate(zip(prepared, met, strict=True))
        if isinstance(answer, NoEntry)
    }
    stores = stores._replace(asks=is_below_run())
    late = any(prepared[number].compilation.late or prepared[number].refusal for number in missed)
    if late or stores.target is None:
        return _left(stores, [(prepared[number], why) for number, why in missed.items()], call)
    if len(missed) > 1:  # before the entry of one can be the nearest to another
        LATER.add(stores, prepared[0], lambda: [why() for why in missed.values()])
    given = [
        answer
        if isinstance(answer, Hit)
        else build(stores, one, _compiler(call, device, one), missed[number])
        for number, (device, one, answer) in enumerate(zip(call.devices, prepared, met, strict=True))
    ]
    return _given(stores, prepared, given, call)


def replace_rejected(
    stores: Stores, prepared: Sequence[Prepared], hits: Sequence[Hit], call: "Call", why: str
) -> Any:
    """The program compiled again, as the driver rejects its entries."""
    prepared = list(map(_named, call.devices, prepared))
    missed = [(one, reason(stores, one, Miss(Verdict.REJECTED, why))) for one in prepared]
    stores = stores._replace(asks=is_below_run())
    if stores.target is None or any(one.compilation.late for one in prepared):
        from gpucache.engine.lookup import discard

        for hit in hits:
            discard(stores, hit, why)
        return _left(stores, missed, call)
    given = [
        build(stores, one, _compiler(call, device, one), told, useless=hit)
        for device, (one, told), hit in zip(call.devices, missed, hits, strict=True)
    ]
    return _given(stores, prepared, given, call)


def learn_sizes(stores: Stores, device: Any, prepared: Prepared, hit: Hit) -> None:
    """Note the local sizes that a hit was not compiled for."""
    from gpucache.engine.lookup import note_lacking

    prepared = _named(device, prepared)
    outcomes.learn(stores, note_lacking(stores, prepared, hit, _environment(prepared)))


def _named(device: Any, prepared: Prepared) -> Prepared:
    """A request with the names of program and target, which are for people: a hit does not wait for them."""
    request = prepared.request
    request = request._replace(program=named(request.program), target=platforms.target_of(device))
    return prepared._replace(request=request)


def keep_row(stores: Stores, prepared: Sequence[Prepared], call: "Call", *, is_new: bool = True) -> None:
    """Write the row that answers the next such build, after its entries; for a hit only if a row is due."""

    def keep() -> None:
        from gpucache.opencl.row import keep_row

        named = list(map(_named, call.devices, prepared))
        keep_row(stores, call.question, named, call.devices, is_new=is_new)

    if call.question and stores.keeps:
        LATER.add(stores, prepared[0], keep)


def _given(
    stores: Stores, prepared: Sequence[Prepared], results: Sequence[Hit | Artifact], call: "Call"
) -> Any:
    """The compiler's program, or the program of entries that another process published meanwhile."""
    hits = [outcome for outcome in results if isinstance(outcome, Hit)]
    for one, outcome in zip(prepared, results, strict=True):
        if isinstance(outcome, Hit):
            outcomes.tell(stores, one, outcome)
    keep_row(stores, prepared, call)
    return call.load(stores, prepared, hits) if call.program is None else call.program


def _left(stores: Stores, missed: Sequence[tuple[Prepared, Callable[[], Miss]]], call: "Call") -> Any:
    """The program built by PyOpenCL as without gpucache; a late compiler's request is noted."""
    with noting_failures(stores, missed):
        program = call.plain()
    for one, why in missed:
        LATER.add(stores, one, partial(_leave, stores, one, why, call.compile_ns, _environment(one)))
    return program


def _leave(
    stores: Stores, prepared: Prepared, why: Callable[[], Miss], compile_ns: int, environ: Variables
) -> None:
    from gpucache.engine.lookup import leave

    plain = leave(stores, prepared, why(), compile_ns, environ)
    outcomes.tell(stores, prepared, plain)
    outcomes.learn(stores, plain.noted)


def _environment(prepared: Prepared) -> Variables:
    return BACKEND.environment(prepared.compilation.inputs.toolchain, environment())


def _compiler(call: "Call", device: Any, prepared: Prepared) -> Callable[[], Artifact]:
    def compile_() -> Artifact:
        request = prepared.request
        if call.program is None:
            call.build_created(for_pyopencl(request), request)
        return compiler.artifact_of(call.program, device, request, call.compile_ns)

    return compile_
