"""A command's builds, recorded and not served: each goes to the driver as without gpucache.

A build is written down before the command goes on, while its headers are unchanged since the request; later
facts, such as its end and the local sizes of its launches, are added.
"""

import shlex
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from threading import Lock
from typing import Any

from gpucache.backends.interface import load_backend
from gpucache.engine.recorded_requests import observe
from gpucache.errors import GpucacheError
from gpucache.recording.builds import COMMAND_CAP, Seen
from gpucache.recording.writing import Writer
from gpucache.serve.answering import Compiler
from gpucache.serve.foreseen import recorded
from gpucache.serve.opencl import OpenCL, local_size
from gpucache.serve.server import HEARD, PASSED, Handlers, Reply
from gpucache.serve.wire import Fields, Kind, WireError, number

_SIZES_CAP = 4096
"""The most kernels and sizes that are written of one build by this process."""


class Recorder:
    """Writes down a command's builds, and gives the tokens by which it refers to them."""

    def __init__(self, writer: Writer, command: Sequence[str], compilers: Iterable[Compiler[Any]]) -> None:
        """``command`` is kept unchanged: arguments may contain secrets."""
        self._writer = writer
        self._command = shlex.join(command)[:COMMAND_CAP]
        self._compilers = tuple(compilers)
        self._lock = Lock()
        self._tokens = count(1)
        self._builds: dict[bytes, tuple[tuple[str, ...], tuple[int, ...]]] = {}
        """The digest of each build, with the codes by which its compiler refuses programs."""
        self._sizes: Counter[bytes] = Counter()
        self.unrecorded: Counter[str] = Counter()
        """Why builds were not recorded, each reason with how many."""

    @property
    def builds(self) -> int:
        return self._writer.builds

    @property
    def failed(self) -> int:
        return self._writer.failed

    @property
    def handlers(self) -> Handlers:
        handlers = {Kind.LAUNCHED: self._launched, Kind.OTHER: self._other, Kind.LOADED: self._loaded}
        handlers[Kind.PART] = self._part
        for compiler in self._compilers:
            handlers |= {compiler.ask: partial(self._ask, compiler), compiler.told: self._told}
        return handlers

    def _loaded(self, _: Fields) -> Reply:
        for compiler in self._compilers:
            if isinstance(compiler, OpenCL):
                compiler.devices.begin()
        return HEARD

    def _ask(self, compiler: Compiler[Any], fields: Fields) -> Reply:
        question = fields.rest()
        asked = compiler.read(Fields(question))
        if asked.is_ours:
            self._leave_out("a program of gpucache.cuda has separate keys; pass its sources to warm")
            return PASSED
        digests: list[str] = []
        try:
            parts = compiler.prepare(asked)
            for prepared in parts[: 1 if compiler.is_whole else None]:
                toolchain = prepared.compilation.inputs.toolchain
                backend = load_backend(prepared.request.target.backend)
                done = observe(prepared, backend.environment(toolchain, asked.environ))
                seen, contents = Seen(first=(time.time_ns(), self._command)), dict(done.contents)
                if self._writer.keeps_sources:
                    seen = seen.union(done.places)
                    if not digests and (kept := recorded(compiler.ask, question)):
                        seen = seen.union(Seen(questions=frozenset({kept[0]})))
                        contents[kept[0].source] = kept[1]
                if why := self._writer.build(done.build, seen, contents):
                    self._leave_out(why)
                digests.append(done.build.digest)
        except (GpucacheError, OSError) as error:
            self._leave_out(str(error))
            return PASSED
        token = number(next(self._tokens))
        self._builds[token] = tuple(digests), compiler.refusals
        return Reply(Kind.PASS, (token,))

    def _told(self, fields: Fields) -> Reply:
        token, code, compile_ns = fields.take(), fields.number(), fields.number()
        refused = code in self._known(token)[1]
        self._see(token, Seen(compile_ns=max(0, compile_ns), built=code == 0, refused=refused))
        return HEARD

    def _launched(self, fields: Fields) -> Reply:
        token, kernel, size = fields.take(), fields.text(), fields.text()
        self._sizes[token] += 1  # two threads may count one, which is well below the bound
        if self._sizes[token] <= _SIZES_CAP:
            extents = local_size(size) if size else ()
            self._see(token, Seen(frozenset({(kernel, extents)})))
        return HEARD

    def _part(self, _: Fields) -> Reply:
        self._leave_out("clCompileProgram is not recorded")
        return PASSED

    def _other(self, fields: Fields) -> Reply:
        fields.number()  # the process
        self._leave_out(f"{fields.text()} is not recorded")
        return HEARD

    def _known(self, token: bytes) -> tuple[tuple[str, ...], tuple[int, ...]]:
        if token not in self._builds:
            raise WireError("no build has this token")
        return self._builds[token]

    def _see(self, token: bytes, seen: Seen) -> None:
        for digest in self._known(token)[0]:
            self._writer.seen(digest, seen)

    def _leave_out(self, why: str) -> None:
        with self._lock:
            self.unrecorded[why] += 1
