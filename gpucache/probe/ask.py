"""Find the devices and compilers of this machine, one child process for each backend, with a time limit.

This module owns the children, which do not outlive this process. A probe leaves no files: some compilers
write into their cache as soon as their devices are listed, so the children get a directory for that which is
removed afterwards, and which does not change their results. A process that ends while another thread probes
ends them first: see ``ENDINGS``. A backend whose child dies, hangs or prints nonsense becomes a row with its
error. This module must not import a GPU stack itself.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from gpucache.backends.interface import backend_names
from gpucache.errors import TargetError
from gpucache.host.process_groups import start_group
from gpucache.host.scratch import ENDINGS, scratch
from gpucache.model import Device
from gpucache.probe.remembered import device_from_json

TIMEOUT_S = 60.0
_READ_S = 1.0
"""The time for reading a result that remains even if another child used up the time limit."""
# With -P the child imports nothing from the current directory.
_COMMAND = (sys.executable, "-P", "-m", "gpucache.probe.child")

_askers: set[threading.Thread] = set()
_children: "set[subprocess.Popen[bytes]]" = set()
_ending = threading.Event()


def ask(
    backends: Sequence[str] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    command: Sequence[str] = _COMMAND,
    meanwhile: Callable[[], object] = lambda: None,
) -> list[Device]:
    """Every row of the named backends, or of all; never raises for a fault of a driver.

    ``meanwhile`` is called once while the drivers work.
    """
    names = tuple(backend_names() if backends is None else backends)
    with ExitStack() as ends:
        ENDINGS.add(_end_asking)
        _askers.add(asker := threading.current_thread())
        ends.callback(_askers.discard, asker)
        folder = _folder(ends) if names else ""
        with _undisturbed():
            asked = [(name, _start([*command, name, folder], ends)) for name in names]
        end_s = time.monotonic() + timeout_s
        meanwhile()
        return [device for name, child in asked for device in _answer(name, child, timeout_s, end_s)]


def _end_asking() -> None:
    """End the probes of other threads, as this process ends: first the children, then their directories."""
    _ending.set()
    for child in tuple(_children):
        child.kill()
    for asker in _askers - {threading.current_thread()}:
        asker.join(_READ_S)


def _folder(ends: ExitStack) -> str:
    """A directory in which the children's drivers may keep files; empty if none can be made."""
    try:
        return str(ends.enter_context(scratch("probe")))
    except OSError:
        return ""


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Block interrupts, so that none comes between the start of a child and the note that ends it.

    The children inherit this and get no interrupt at all; SIGKILL, which cannot be blocked, ends them.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(command: Sequence[str], ends: ExitStack) -> "subprocess.Popen[bytes] | OSError":
    """A child that probes, which ``ends`` will end; or the reason why it could not be started."""
    try:
        child = start_group(command, ends, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        return error
    ends.enter_context(child)
    ends.callback(child.kill)
    _children.add(child)
    ends.callback(_children.discard, child)
    if _ending.is_set():
        child.kill()
    return child


def _answer(
    backend: str, child: "subprocess.Popen[bytes] | OSError", timeout_s: float, end_s: float
) -> list[Device]:
    if isinstance(child, OSError):
        return [_broken(backend, f"the probe could not be started ({child})")]
    try:
        # All children run at once, so several drivers that hang cost the time limit only once.
        out, errors = child.communicate(timeout=max(_READ_S, end_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        child.kill()
        return [_broken(backend, f"the probe did not finish within {timeout_s:g} s; the driver hangs")]
    if child.returncode != 0:
        return [_broken(backend, _death(child.returncode, errors))]
    try:
        document = json.loads(out)
        if "error" in document:
            return [_broken(backend, str(document["error"]))]
        return [device_from_json(value) for value in document["devices"]]
    except (ValueError, TypeError, KeyError, RecursionError, TargetError):
        return [_broken(backend, "the probe's output is not valid")]


def _death(status: int, stderr: bytes) -> str:
    last = stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"the driver crashed during the probe ({name}); check its installation"
    return f"the driver failed during the probe: {last or f'exit status {status}'}"


def _broken(backend: str, detail: str) -> Device:
    return Device(None, backend, backend, "", available=False, detail=detail, present=False)
