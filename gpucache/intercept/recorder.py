"""A command's builds, recorded and not served: every one goes to the driver as it would without us.

A build is written down before the command goes on, while its headers are what they were when it was asked
for; what is known of it later, how it ended and with what local sizes it was launched, is added.
"""

import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from threading import Lock

from gpucache.backends.opencl import BACKEND
from gpucache.engine.observed import observe
from gpucache.engine.prepare import Prepared
from gpucache.errors import GpucacheError
from gpucache.intercept.devices import Devices
from gpucache.intercept.environment import Libraries
from gpucache.intercept.opencl import prepare_build, read_build
from gpucache.intercept.server import HEARD, PASSED, Handlers, Reply
from gpucache.intercept.serving import local_size
from gpucache.intercept.wire import Fields, Kind, WireError, number
from gpucache.outcomes import Intercepted
from gpucache.recording.builds import Seen
from gpucache.recording.lines import COMMAND_CAP
from gpucache.recording.writing import Writer

_PROBE_S = 60.0
_SIZES_CAP = 4096
"""The most kernels and sizes that are written of one build by this process."""
_REFUSALS = (-11, -43)
"""CL_BUILD_PROGRAM_FAILURE and CL_INVALID_BUILD_OPTIONS; other codes tell nothing of the program."""


class OpenCLRecorder:
    """Writes down a command's OpenCL builds."""

    def __init__(
        self, writer: Writer, devices: Devices, libraries: Libraries, command: Sequence[str]
    ) -> None:
        self._writer = writer
        self._devices = devices
        self._libraries = libraries
        self._command = shlex.join(command)[:COMMAND_CAP]
        self._lock = Lock()
        self._tokens = count(1)
        self._builds: dict[bytes, tuple[str, ...]] = {}
        self._sizes: Counter[bytes] = Counter()
        self.unrecorded: Counter[str] = Counter()
        """Why builds were not recorded, each reason with how many."""

    @property
    def handlers(self) -> Handlers:
        """What answers each kind of request."""
        return {
            Kind.BUILD: self._build,
            Kind.BUILT: self._built,
            Kind.LAUNCHED: self._launched,
            Kind.OTHER: self._other,
        }

    def begin(self) -> None:
        """Find the devices here; nothing is served, so the command can wait for that."""
        self._devices.begin()
        self._devices.wait(_PROBE_S)

    def finish(self) -> Sequence[Intercepted]:
        """Nothing became of any build."""
        return ()

    def _build(self, fields: Fields) -> Reply:
        asked = read_build(fields, self._libraries)
        try:
            prepared = prepare_build(asked, self._devices)
            digests = tuple(self._record(one, asked.environ) for one in prepared)
        except (GpucacheError, OSError) as error:
            self._leave_out(str(error))
            return PASSED
        token = number(next(self._tokens))
        with self._lock:
            self._builds[token] = digests
        return Reply(Kind.PASS, (token,))

    def _record(self, prepared: Prepared, environ: Mapping[str, str]) -> str:
        """Write down a build for one device; its digest."""
        reaching = BACKEND.environment(prepared.compilation.inputs.toolchain, environ)
        done = observe(prepared, reaching)
        seen = Seen(first=(time.time_ns(), self._command))
        if why := self._writer.build(done.build, seen, done.contents):
            self._leave_out(why)
        return done.build.digest

    def _built(self, fields: Fields) -> Reply:
        digests = self._known(fields.take())
        code, build_ns = fields.number(), fields.number()
        refused = code in _REFUSALS
        self._see(digests, Seen(compile_ns=max(0, build_ns), built=code == 0, refused=refused))
        return HEARD

    def _launched(self, fields: Fields) -> Reply:
        token = fields.take()
        digests = self._known(token)
        kernel, size = fields.text(), fields.text()
        with self._lock:
            self._sizes[token] += 1
            if self._sizes[token] > _SIZES_CAP:
                return HEARD
        self._see(digests, Seen(frozenset({(kernel, local_size(size) if size else ())})))
        return HEARD

    def _other(self, fields: Fields) -> Reply:
        fields.number()  # the process
        self._leave_out(f"{fields.text()} is not recorded")
        return HEARD

    def _known(self, token: bytes) -> tuple[str, ...]:
        """The builds that a request speaks of; raises WireError for one that nobody knows."""
        digests = self._builds.get(token)
        if digests is None:
            raise WireError("no build has this token")
        return digests

    def _see(self, digests: Sequence[str], seen: Seen) -> None:
        for digest in digests:
            self._writer.seen(digest, seen)

    def _leave_out(self, why: str) -> None:
        with self._lock:
            self.unrecorded[why] += 1
