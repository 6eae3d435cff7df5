"""``gpucache.cuda.Batch``: many sources for one architecture. Loads cuda.core."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cuda.core import ObjectCode

from gpucache.cuda import compile_program
from gpucache.errors import CompileError
from gpucache.library import arguments
from gpucache.library.batch import Batch as AnyBatch
from gpucache.library.batch import Routine
from gpucache.library.joined_sources import Part


class Batch(AnyBatch[ObjectCode, Any]):
    """Sources for one architecture that are compiled, kept and loaded as one module where they can be.

    The arguments are those of ``compile_program``, and apply to all sources. ``add`` gives a ``Routine``;
    nothing is compiled before the ``kernel`` or ``program`` of one is asked for. Raises as
    ``compile_program`` does, then. A ``CheckedStream`` launches kernels of ``routine.program``; a failed
    check names its source.
    """

    refused = CompileError

    def __init__(
        self,
        *,
        target: str | None = None,
        options: str | Sequence[str] = (),
        include_path: Sequence[str | Path] = (),
        artifact_kind: str | None = None,
        headers: Sequence[str | Path] = (),
        checks: str = "none",
    ) -> None:
        super().__init__(checks)
        self._build = partial(
            compile_program,
            target=target,
            options=options,
            include_path=include_path,
            artifact_kind=artifact_kind,
            headers=headers,
            checks=checks,
        )

    def add(
        self, source: str | bytes, *, name: str | None = None, name_expressions: Sequence[str] = ()
    ) -> Routine[ObjectCode, Any]:
        """A source to be built with the others; ``name`` appears in the compiler's messages."""
        return self._add(source, name, arguments.texts("name_expressions", name_expressions))

    def build(self, part: Part, expressions: tuple[str, ...]) -> ObjectCode:
        """A ``cuda.core.ObjectCode``, which loads itself when its first kernel is requested."""
        return self._build(part.source, name=part.name, name_expressions=expressions)

    def kernel_of(self, program: ObjectCode, name: str) -> Any:
        return program.get_kernel(name)
