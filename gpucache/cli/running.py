"""The command of ``gpucache run``, from its start to its end, and the line that is written then.

Owns what answers it: nothing at first, as what the index answers is answered in the command; all that answers
the rest is imported when the first question comes. Imports next to nothing, and neither Click nor settings:
every command waits for that. Must not know options: ``run`` does.
"""

import os
import sys

from gpucache.intercept.command import Plain, await_command
from gpucache.intercept.environment import Libraries
from gpucache.intercept.listening import Listening
from gpucache.native.locate import find

TYPE_CHECKING = False  # the one of typing
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpucache.engine.store_layers import Layers
    from gpucache.intercept.nvrtc_serving import NVRTCServing
    from gpucache.intercept.server import Handlers, Later
    from gpucache.intercept.serving import OpenCLServing
    from gpucache.outcomes import Ended, Intercepted
    from gpucache.settings import Settings

_PLAIN = frozenset({"GPUCACHE_DIR"})
"""The variables of ours with which a command may be run before options and settings are read."""


def is_plain(arguments: "Sequence[str]") -> bool:
    """Whether a command line is ``run -- COMMAND`` alone, with nothing else to be read first."""
    if arguments[:2] != ["run", "--"] or len(arguments) == 2:
        return False
    os.umask(os.umask(0o077) & 0o077)  # as process does
    if any(name.startswith("GPUCACHE_") and name not in _PLAIN for name in os.environ):
        return False
    return None not in (sys.stdin, sys.stdout, sys.stderr)


class Running:
    """A command that is run once, and what answered it."""

    def __init__(self, command: "Sequence[str]", root: "str | None" = None, alone: str = "") -> None:
        """``root`` is where the option says that the cache lives, ``alone`` why it is not to be asked."""
        self._alone = alone
        self.command = command
        self._root = root
        self._listening = Listening(self._answering)
        self._ended: Plain = (0, 0, "", False, ())
        self._error: Exception | None = None
        self._libraries: Libraries | None = None
        self.opencl: Later[OpenCLServing] | None = None
        self.nvrtc: Later[NVRTCServing] | None = None
        """What answered; None if nothing was asked."""

    def run(self, environ: "Mapping[str, str]") -> None:
        """Run it; what goes wrong before its start is raised by ``ended``."""
        try:
            self._libraries = libraries()
            self._ended = await_command(self.command, environ, self._libraries, self._listening, self._alone)
        except Exception as error:
            self._error = error

    @property
    def ended(self) -> "Ended":
        """How it ended; raises what kept it from being started."""
        if self._error is not None:
            raise self._error
        from gpucache.outcomes import Ended

        return Ended(*self._ended)

    def end(self) -> "int | None":
        """Write the line for a command that needed no server, and give its exit code; None for any other."""
        code, number, alone, *_ = self._ended
        if self._error or number or alone or self.opencl or self._listening.error:
            return None
        from gpucache.render.run import UNSEEN

        sys.stderr.write(f"gpucache: {UNSEEN}\n")
        return code

    def finish(self) -> "tuple[Intercepted, ...]":
        """What became of each build."""
        return tuple(one for service in (self.opencl, self.nvrtc) if service for one in service.finish())

    def _answering(self) -> "Handlers":
        from gpucache.intercept.server import Later
        from gpucache.intercept.wire import NVRTC, OPENCL
        from gpucache.settings import read_settings

        settings = read_settings(os.environ, root=self._root)
        make = Services(settings, os.path.basename(self.command[0]), self._libraries or Libraries())  # noqa: PTH119
        self.opencl, self.nvrtc = Later(make.opencl, OPENCL), Later(make.nvrtc, NVRTC)
        return {**self.opencl.handlers, **self.nvrtc.handlers}


class Services:
    """Makes what answers the command."""

    def __init__(self, settings: "Settings", command: str, libraries: Libraries) -> None:
        self._settings = settings
        self._command = command
        self._libraries = libraries

    def opencl(self) -> "OpenCLServing":
        """Of OpenCL builds."""
        from gpucache.intercept.devices import Devices

        layers = self._layers()
        devices = Devices(layers)
        devices.begin()  # which takes longer than the rest
        from gpucache.intercept.serving import OpenCLServing
        from gpucache.intercept.telling import said_at

        return OpenCLServing(layers, devices, self._libraries, said_at(self._settings.log))

    def nvrtc(self) -> "NVRTCServing":
        """Of NVRTC's compiles."""
        from gpucache.intercept.nvrtc_serving import NVRTCServing
        from gpucache.intercept.telling import said_at

        return NVRTCServing(self._layers(), said_at(self._settings.log))

    def _layers(self) -> "Layers":
        from gpucache.assembly import open_layers

        return open_layers(self._settings, command=self._command)


def libraries() -> Libraries:
    """The libraries that go into the command; raises NoDeviceError if nothing could be served."""
    (layer, no_layer), (audit, no_audit) = find("opencl_layer"), find("nvrtc_audit")
    if no_layer and no_audit:
        from gpucache.errors import NoDeviceError

        raise NoDeviceError(no_layer)
    return Libraries("" if no_layer else layer, "" if no_audit else audit)
