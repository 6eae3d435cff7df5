"""Ask what devices and compilers are here, one child process for each backend, with a time limit.

Owns the children, which do not outlive this process, and that asking leaves nothing behind: PoCL makes a
file in its cache as soon as its devices are asked for, so a child's cache is a folder that is removed
afterwards. What a child answers does not depend on it. A backend whose child
dies, hangs or talks nonsense becomes a row with its error. Must not import a GPU stack itself.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_dir

from gpucache.backends.registry import backend_names
from gpucache.errors import TargetError
from gpucache.host.scratch import scratch
from gpucache.host.tether import tether, tie
from gpucache.model import Device
from gpucache.probe.codec import device_from_json

TIMEOUT_S = 60.0
_READ_S = 1.0
"""At least so long an answer is read for that was given while another child was waited for."""
_POCL_CACHE = "POCL_CACHE_DIR"
# -P: what lies in the current directory is not imported.
_COMMAND = (sys.executable, "-P", "-m", "gpucache.probe.child")


def ask(
    backends: Sequence[str] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    command: Sequence[str] = _COMMAND,
) -> list[Device]:
    """Every row of the named backends, or of all; never raises for what a driver does."""
    names = tuple(backend_names() if backends is None else backends)
    with ExitStack() as ends:
        environ = {**os.environ, **_redirected(ends)} if names else {}
        with _undisturbed():
            asked = [(name, _start([*command, name], environ, ends)) for name in names]
        end_s = time.monotonic() + timeout_s
        return [device for name, child in asked for device in _answer(name, child, timeout_s, end_s)]


def _redirected(ends: ExitStack) -> Mapping[str, str]:
    """What keeps the children out of the user's cache.

    Nothing where PoCL cannot use that cache, or none can be made beside it: then it shows no device to
    programs either, which the children are to see.
    """
    try:
        place = Path(os.environ.get(_POCL_CACHE) or Path(user_cache_dir()) / "pocl" / "kcache").absolute()
        if place.exists():
            if not os.access(place, os.W_OK | os.X_OK):
                return {}
        else:
            beside = next(folder for folder in place.parents if folder.exists())
            TemporaryDirectory(prefix=".gpucache-probe-", dir=beside).cleanup()
        return {_POCL_CACHE: str(ends.enter_context(scratch("probe")))}
    except OSError:
        return {}


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No interrupt comes between the start of a child and the note that it has to be ended.

    The children inherit that they hear none; they are ended by what nobody can decline to hear.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(
    command: Sequence[str], environ: Mapping[str, str], ends: ExitStack
) -> "subprocess.Popen[bytes] | OSError":
    """A child that is asked, and that will have ended at the end; or why it could not be started."""
    line = ends.enter_context(tether())
    try:
        child = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if line is None else (line,),
        )
    except OSError as error:
        return error
    if line is not None:
        tie(line, child.pid)
    ends.enter_context(child)
    ends.callback(child.kill)
    return child


def _answer(
    backend: str, child: "subprocess.Popen[bytes] | OSError", timeout_s: float, end_s: float
) -> list[Device]:
    if isinstance(child, OSError):
        return [_broken(backend, f"the probe could not be started ({child})")]
    try:
        # They all run at once, so that several drivers that hang cost one limit.
        out, errors = child.communicate(timeout=max(_READ_S, end_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        child.kill()
        return [_broken(backend, f"the probe did not answer within {timeout_s:g} s; the driver hangs")]
    if child.returncode != 0:
        return [_broken(backend, _death(child.returncode, errors))]
    return _read(backend, out)


def _read(backend: str, answer: bytes) -> list[Device]:
    try:
        document = json.loads(answer)
        if "error" in document:
            return [_broken(backend, str(document["error"]))]
        return [device_from_json(value) for value in document["devices"]]
    except (ValueError, TypeError, KeyError, RecursionError, TargetError):
        return [_broken(backend, "the probe's answer does not read")]


def _death(status: int, stderr: bytes) -> str:
    last = stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"the driver crashed while it was asked ({name}); check its installation"
    return f"the driver failed while it was asked: {last or f'exit status {status}'}"


def _broken(backend: str, detail: str) -> Device:
    return Device(None, backend, backend, "", available=False, detail=detail, present=False)
