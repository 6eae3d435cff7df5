"""A command's builds, recorded and not served: every one goes to the driver as it would without us.

A build is written down before the command goes on, while its headers are what they were when it was asked
for; what is known of it later, how it ended and with what local sizes it was launched, is added.
"""

import shlex
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from threading import Lock

from gpucache.answers.run import Intercepted
from gpucache.backends.cuda import BACKEND as CUDA
from gpucache.backends.opencl import BACKEND
from gpucache.engine.prepare import Prepared
from gpucache.engine.recorded_requests import observe
from gpucache.errors import GpucacheError
from gpucache.intercept.devices import Devices
from gpucache.intercept.environment import Libraries
from gpucache.intercept.nvrtc import prepare_call, read_call
from gpucache.intercept.opencl import prepare_build, read_build
from gpucache.intercept.server import HEARD, PASSED, Handlers, Reply
from gpucache.intercept.serving import local_size
from gpucache.intercept.wire import Fields, Kind, WireError, number
from gpucache.recording.builds import COMMAND_CAP, Pairs, Seen
from gpucache.recording.writing import Writer

_SIZES_CAP = 4096
"""The most kernels and sizes that are written of one build by this process."""
_REFUSALS = (-11, -43)
"""CL_BUILD_PROGRAM_FAILURE and CL_INVALID_BUILD_OPTIONS; other codes tell nothing of the program."""
_NVRTC_REFUSALS = (5, 6)
"""NVRTC_ERROR_INVALID_OPTION and NVRTC_ERROR_COMPILATION, likewise."""


class Recorded:
    """What is written down of a command, and the tokens by which it speaks of its builds."""

    def __init__(self, writer: Writer, command: Sequence[str]) -> None:
        """``command`` is kept as it is given: arguments may hold secrets."""
        self._writer = writer
        self._command = shlex.join(command)[:COMMAND_CAP]
        self._lock = Lock()
        self._tokens = count(1)
        self._builds: dict[bytes, tuple[str, ...]] = {}
        self.unrecorded: Counter[str] = Counter()
        """Why builds were not recorded, each reason with how many."""

    @property
    def builds(self) -> int:
        """How many were written, each once."""
        return self._writer.builds

    def record(self, wanted: Sequence[tuple[Prepared, Pairs]]) -> Reply:
        """Write down a build for one device or several, each with the variables that reach its compiler."""
        digests = []
        for prepared, reaching in wanted:
            done = observe(prepared, reaching)
            seen = Seen(first=(time.time_ns(), self._command))
            if self._writer.keeps_sources:
                seen = seen.union(done.places)
            if why := self._writer.build(done.build, seen, done.contents):
                self.leave_out(why)
            digests.append(done.build.digest)
        token = number(next(self._tokens))
        with self._lock:
            self._builds[token] = tuple(digests)
        return Reply(Kind.PASS, (token,))

    def see(self, token: bytes, seen: Seen) -> None:
        """Add to the build of a token; raises WireError for one that nobody gave."""
        digests = self._builds.get(token)
        if digests is None:
            raise WireError("no build has this token")
        for digest in digests:
            self._writer.seen(digest, seen)

    def leave_out(self, why: str) -> None:
        """Count a build that is not recorded."""
        with self._lock:
            self.unrecorded[why] += 1


class OpenCLRecorder:
    """Writes down a command's OpenCL builds."""

    def __init__(self, recorded: Recorded, devices: Devices, libraries: Libraries) -> None:
        self._recorded = recorded
        self._devices = devices
        self._libraries = libraries
        self._sizes: Counter[bytes] = Counter()

    @property
    def handlers(self) -> Handlers:
        """What answers each kind of request."""
        return {
            Kind.BUILD: self._build,
            Kind.BUILT: self._built,
            Kind.LAUNCHED: self._launched,
            Kind.OTHER: self._other,
            Kind.LOADED: self._loaded,
        }

    def finish(self) -> Sequence[Intercepted]:
        """Nothing became of any build."""
        return ()

    def _loaded(self, _: Fields) -> Reply:
        self._devices.begin()
        return HEARD

    def _build(self, fields: Fields) -> Reply:
        asked = read_build(fields, self._libraries)
        try:
            prepared = prepare_build(asked, self._devices)
            reaching = (
                BACKEND.environment(one.compilation.inputs.toolchain, asked.environ) for one in prepared
            )
            return self._recorded.record(tuple(zip(prepared, reaching, strict=True)))
        except (GpucacheError, OSError) as error:
            self._recorded.leave_out(str(error))
            return PASSED

    def _built(self, fields: Fields) -> Reply:
        token, code, build_ns = fields.take(), fields.number(), fields.number()
        refused = code in _REFUSALS
        self._recorded.see(token, Seen(compile_ns=max(0, build_ns), built=code == 0, refused=refused))
        return HEARD

    def _launched(self, fields: Fields) -> Reply:
        token, kernel, size = fields.take(), fields.text(), fields.text()
        self._sizes[token] += 1  # two threads may count one, which is well below the bound
        if self._sizes[token] <= _SIZES_CAP:
            extents = local_size(size) if size else ()
            self._recorded.see(token, Seen(frozenset({(kernel, extents)})))
        return HEARD

    def _other(self, fields: Fields) -> Reply:
        fields.number()  # the process
        self._recorded.leave_out(f"{fields.text()} is not recorded")
        return HEARD


class NVRTCRecorder:
    """Writes down what a command asks NVRTC for."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    @property
    def handlers(self) -> Handlers:
        """What answers each kind of request."""
        return {Kind.COMPILE: self._compile, Kind.COMPILED: self._compiled}

    def finish(self) -> Sequence[Intercepted]:
        """Nothing became of any compile."""
        return ()

    def _compile(self, fields: Fields) -> Reply:
        call = read_call(fields)
        if call.is_ours:
            self._recorded.leave_out("a program of gpucache.cuda has keys of its own; warm takes its sources")
            return PASSED
        try:
            prepared = prepare_call(call)
            reaching = CUDA.environment(prepared.compilation.inputs.toolchain, call.environ)
            return self._recorded.record([(prepared, reaching)])
        except (GpucacheError, OSError) as error:
            self._recorded.leave_out(str(error))
            return PASSED

    def _compiled(self, fields: Fields) -> Reply:
        token, code, compile_ns = fields.take(), fields.number(), fields.number()
        refused = code in _NVRTC_REFUSALS
        self._recorded.see(token, Seen(compile_ns=max(0, compile_ns), built=code == 0, refused=refused))
        return HEARD
