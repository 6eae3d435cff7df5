"""A build that is no hit: by its compiler, or by PyOpenCL as if we were not there; what is kept and logged.

Imported by the first build that misses.
"""

from collections.abc import Callable, Sequence
from typing import Any

from gpucache.answers.lookup import Built, Hit, Miss, Verdict
from gpucache.backends.opencl import BACKEND, compiler, platforms
from gpucache.backends.opencl.options import for_pyopencl
from gpucache.engine.explain import explain
from gpucache.engine.lookup import build, require_hit
from gpucache.engine.missed import discard, leave, note_lacking
from gpucache.engine.prepare import Prepared
from gpucache.engine.program_names import named
from gpucache.engine.store_layers import Layers, NoEntry
from gpucache.host.environment import environment
from gpucache.library import process
from gpucache.model import Artifact
from gpucache.opencl.building import Call


def answer_miss(
    layers: Layers, prepared: Sequence[Prepared], met: Sequence[Hit | NoEntry], call: Call
) -> Any:
    """The program as the compiler gives it, which is then kept, where an entry of a device is missing."""
    prepared = list(map(_named, call.devices, prepared))
    found = [
        answer if isinstance(answer, Hit) else explain(layers, one, answer)
        for one, answer in zip(prepared, met, strict=True)
    ]
    misses = [(one, answer) for one, answer in zip(prepared, found, strict=True) if isinstance(answer, Miss)]
    for one, miss in misses:
        require_hit(layers, one, miss)
    if any(one.compilation.late or one.refusal for one, _ in misses) or layers.target is None:
        return _left(layers, misses, call)
    outcomes = [
        answer if isinstance(answer, Hit) else build(layers, one, _compiler(call, device, one), answer)
        for device, one, answer in zip(call.devices, prepared, found, strict=True)
    ]
    return _given(layers, prepared, outcomes, call)


def replace_rejected(
    layers: Layers, prepared: Sequence[Prepared], hits: Sequence[Hit], call: Call, why: str
) -> Any:
    """The program compiled again, as the driver rejects its entries."""
    prepared = list(map(_named, call.devices, prepared))
    misses = [(one, Miss(Verdict.REJECTED, why)) for one in prepared]
    for one, miss in misses:
        require_hit(layers, one, miss)
    if layers.target is None or any(one.compilation.late for one in prepared):
        for hit in hits:
            discard(layers, hit, why)
        return _left(layers, misses, call)
    outcomes = [
        build(layers, one, _compiler(call, device, one), miss, useless=hit)
        for device, (one, miss), hit in zip(call.devices, misses, hits, strict=True)
    ]
    return _given(layers, prepared, outcomes, call)


def learn_sizes(layers: Layers, device: Any, prepared: Prepared, hit: Hit) -> None:
    """Note the local sizes that a hit was not compiled for."""
    prepared = _named(device, prepared)
    process.learn(layers, note_lacking(layers, prepared, hit, _environment(prepared)))


def _named(device: Any, prepared: Prepared) -> Prepared:
    """The same with the names of program and target, which are for people: a hit does not wait for them."""
    request = prepared.request
    request = request._replace(program=named(request.program), target=platforms.target_of(device))
    return prepared._replace(request=request)


def _given(
    layers: Layers, prepared: Sequence[Prepared], outcomes: Sequence[Hit | Built], call: "Call"
) -> Any:
    """What the compiler gave, or the program of entries that another process published meanwhile."""
    for one, outcome in zip(prepared, outcomes, strict=True):
        process.tell(layers, one, outcome)
    if call.program is not None:
        return call.program
    return call.load(layers, [outcome for outcome in outcomes if isinstance(outcome, Hit)])


def _left(layers: Layers, misses: Sequence[tuple[Prepared, Miss]], call: "Call") -> Any:
    """The program built by PyOpenCL as if gpucache were not there; what a late compiler's wanted is noted."""
    program = call.plain()
    for one, miss in misses:
        plain = leave(layers, one, miss, call.compile_ns, _environment(one))
        process.tell(layers, one, plain)
        process.learn(layers, plain.noted)
    return program


def _environment(prepared: Prepared) -> tuple[tuple[str, str], ...]:
    return BACKEND.environment(prepared.compilation.inputs.toolchain, environment())


def _compiler(call: Call, device: Any, prepared: Prepared) -> Callable[[], Artifact]:
    """What gives the artifact of one device."""

    def compile_() -> Artifact:
        request = prepared.request
        if call.program is None:
            options = for_pyopencl(request)
            call.build_by(
                lambda source: compiler.build_as_pyopencl(call.context, source, options, call.named)
            )
        return compiler.artifact_of(call.program, device, request, call.compile_ns)

    return compile_
