"""``gpucache.opencl.Batch``: many sources for one context. Loads PyOpenCL."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyopencl as cl

from gpucache.backends.opencl.checked import CheckedKernel, CheckedProgram
from gpucache.library.batch import Batch as AnyBatch
from gpucache.library.batch import Routine
from gpucache.library.joined_sources import Part
from gpucache.opencl import build_program


class Batch(AnyBatch[Any, Any]):
    """Sources for one context that are compiled, kept and loaded as one program where they can be.

    The arguments are those of ``build_program``, and apply to all sources. ``add`` gives a ``Routine``;
    nothing is compiled before the ``kernel`` or ``program`` of one is asked for. Raises as ``build_program``
    does, then. A failed check names its source.
    """

    refused = cl.Error

    def __init__(
        self,
        context: cl.Context,
        *,
        options: str | Sequence[str] | None = (),
        devices: Sequence[cl.Device] | None = None,
        include_path: Sequence[str | Path] = (),
        local_sizes: Sequence[Sequence[int] | int] = (),
        headers: Sequence[str | Path] = (),
        checks: str = "none",
    ) -> None:
        super().__init__(checks)
        if not isinstance(context, cl.Context):
            raise TypeError(f"context must be a pyopencl.Context, not {context!r}")
        self._build = partial(
            build_program,
            context,
            options=options,
            devices=devices,
            include_path=include_path,
            local_sizes=local_sizes,
            headers=headers,
            checks=checks,
        )

    def add(self, source: str | bytes, *, name: str | None = None) -> Routine[Any, Any]:
        """A source to be built with the others; ``name`` appears in the compiler's messages."""
        return self._add(source, name)

    def build(self, part: Part, expressions: tuple[str, ...]) -> Any:  # noqa: ARG002 - C has no such names
        return self._build(part.source, name=part.name)

    def kernel_of(self, program: Any, name: str) -> Any:
        """A new ``pyopencl.Kernel``, whose arguments no other thread sets."""
        kind = CheckedKernel if isinstance(program, CheckedProgram) else cl.Kernel
        return kind(program, name)
