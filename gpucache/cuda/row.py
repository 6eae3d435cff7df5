"""The row of a call that this process compiled or found, for the next program that makes the same.

Imported by the thread that does what no program waits for.
"""

import os
from collections.abc import Iterator, Sequence

from gpucache.answers.lookup import Hit
from gpucache.engine.hits import find
from gpucache.engine.prepare import Prepared, named
from gpucache.engine.stores import Stores
from gpucache.library import rows
from gpucache.serve.answering import Rows
from gpucache.serve.nvrtc import NVRTC, Call
from gpucache.serve.wire import Fields


class _Own(NVRTC):
    """Calls of our library, which wants one kind of artifact."""

    first_payload = 1

    def answer(self, asked: Call, hits: Sequence[Hit], _logs: Sequence[bytes]) -> Iterator[bytes]:
        """A token, the code, the program's name, the kind, and each name expression with its symbol."""
        [hit] = hits
        yield from (b"", hit.payload, os.fsencode(hit.head.program), hit.head.artifact_kind.encode())
        for expression in asked.name_expressions:
            yield from (os.fsencode(expression), os.fsencode(hit.head.lowered_names[expression]))


def keep_row(stores: Stores, question: tuple[bytes, ...], prepared: Prepared, *, is_new: bool) -> None:
    """Keep the row of a call that has an entry."""
    library, compiler = rows.library(), _Own()
    if library is None or not library.begun_ns:
        return
    kept = Rows(stores, library.begun_ns, lambda found: library.holds(rows.COMPILE, question, found))
    if not is_new and not kept.is_due(compiler.ask, question):
        return
    prepared = prepared._replace(request=prepared.request._replace(program=named(prepared.request.program)))
    found = find(stores._replace(read_only=True, remote=None), prepared, whole=True)
    hits = [found] if isinstance(found, Hit) else []
    if kept.keep(compiler, question, compiler.read(Fields(question)), [prepared], hits):
        kept.note_none(compiler.ask, question)
