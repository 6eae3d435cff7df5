"""The row of a call that this process compiled or found, for the next program that makes the same.

Imported by the thread that does what no program waits for.
"""

from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import Stores
from gpucache.library import rows
from gpucache.serve.answering import Rows, keep_call
from gpucache.serve.wire import Kind


def keep_row(stores: Stores, question: tuple[bytes, ...], prepared: Prepared, *, is_new: bool) -> None:
    """Keep the row of a call that has an entry."""
    library = rows.library()
    if library is None or not library.begun_ns:
        return
    kept = Rows(stores, library.begun_ns, lambda found: library.holds(rows.COMPILE, question, found))
    if (is_new or kept.is_due(Kind.COMPILE, question)) and keep_call(kept, stores, question, prepared):
        kept.note_none(Kind.COMPILE, question)
