"""The row of a build that this process made or found, for the next program that builds the same.

Imported by the thread that does what no program waits for.
"""

from collections.abc import Sequence
from typing import Any

from gpucache.answers.lookup import Hit
from gpucache.backends.opencl import platforms
from gpucache.engine.hits import find_all
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import Stores
from gpucache.library import rows
from gpucache.native.locate import find
from gpucache.serve.answering import Rows
from gpucache.serve.devices import Devices
from gpucache.serve.environment import Libraries
from gpucache.serve.opencl import Asked, OpenCL
from gpucache.serve.wire import Fields


class _Own(OpenCL):
    """Builds of this process, which knows its drivers' files."""

    def __init__(self, files: Sequence[Sequence[str]]) -> None:
        super().__init__(Devices(), Libraries(layer=find("opencl_layer")[0]))
        self._files = files

    def files(self, _asked: Asked) -> Sequence[Sequence[str]]:
        return self._files


def keep_row(
    stores: Stores,
    question: tuple[bytes, ...],
    prepared: Sequence[Prepared],
    devices: Sequence[Any],
    *,
    is_new: bool,
) -> None:
    """Keep the row of a build that has an entry for each device."""
    library = rows.library()
    if library is None or not library.begun_ns:
        return
    kept = Rows(stores, library.begun_ns, lambda found: library.holds(rows.BUILD, question, found))
    compiler = _Own([tuple(map(str, platforms.installation(device).files)) for device in devices])
    if not is_new and not kept.is_due(compiler.ask, question):
        return
    found = find_all(stores._replace(read_only=True, remote=None), prepared)
    hits = [one for one in found if isinstance(one, Hit)]
    if why := kept.keep(compiler, question, compiler.read(Fields(question)), prepared, hits):
        kept.note_none(compiler.ask, question, why)
