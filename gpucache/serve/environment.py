"""The environment of a command: the additions for it, and its state without us. Pure."""

# Paths are text, as variables contain them.
# ruff: noqa: PTH119

import os

TYPE_CHECKING = False  # the constant of typing; a command waits for each import of this module
if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET = "GPUCACHE_RUN_SOCKET"
ROOTS = "GPUCACHE_RUN_ROOTS"
FILTERS = "GPUCACHE_RUN_FILTERS"
"""The mode and number of this process's seccomp filters; a program may have more."""
TIMEOUT = "GPUCACHE_RUN_TIMEOUT_MS"
FOLLOWED = "GPUCACHE_FOLLOWED"
"""For a push next to a command: the process with which it ends, and the descriptor that it closes when
ready."""
REQUIRE = "GPUCACHE_REQUIRE"
_USUAL_MS = 5_000
_LONGEST_MS = 600_000
LAYERS = "OPENCL_LAYERS"
LIBRARY_PATH = "LD_LIBRARY_PATH"
AUDIT = "LD_AUDIT"
TUNABLES = "GLIBC_TUNABLES"
OWN_TUNABLES = "GPUCACHE_RUN_TUNABLES"
"""The command's own value of ``TUNABLES``, if it has one."""
ROOM = "glibc.rtld.optional_static_tls"
ROOM_BYTES = 4096
"""The spare room for thread-local variables of libraries that are loaded or preloaded.

With an auditor glibc measures the room before it reads the program's libraries. jemalloc, tcmalloc, ASan and
libgomp need 1,448 to 1,896 bytes; 8,192 would leave threads with stacks of 16 KiB no stack."""


class Libraries:
    """The paths of the libraries that go into a command; empty for one that is not there."""

    def __init__(self, layer: str = "", audit: str = "", left_out: str = "") -> None:
        self.layer = layer
        self.audit = audit
        self.left_out = left_out
        """The auditor's path if a user wants it left out."""


def intercepted(
    environ: "Mapping[str, str]", socket: str, libraries: Libraries, roots: str = "", filters: str = ""
) -> dict[str, str]:
    """The environment of a command whose compilers ask at a socket; our values come before its own.

    ``roots`` are the roots whose index they search before they ask; without any they ask at once.
    """
    added = {**environ, SOCKET: socket, ROOTS: roots}
    if not roots:
        del added[ROOTS]
    if filters:
        added[FILTERS] = filters
    for name, library in ((LAYERS, libraries.layer), (AUDIT, libraries.audit)):
        if library:
            others = _others(environ.get(name, ""), library)
            added[name] = os.pathsep.join((library, *others))
    if libraries.left_out and AUDIT in environ:  # an outer run's or a layer's
        added[AUDIT] = os.pathsep.join(_others(environ[AUDIT], libraries.left_out))
    if libraries.audit:
        own = environ.get(TUNABLES)
        if own is not None and SOCKET not in environ:
            added[OWN_TUNABLES] = own
        added[TUNABLES] = with_room(own or "")
    return added


def with_room(tunables: str) -> str:
    """``GLIBC_TUNABLES`` with room for the libraries of a program that has an auditor.

    Of two values of one tunable glibc takes the last, so only the larger one of ours and the user's is kept;
    a text without a value is dropped, as glibc 2.39 and later would ignore all for it.
    """
    pairs = [pair.partition("=") for pair in tunables.split(":")]
    room = max([ROOM_BYTES, *(_bytes(value) for name, _, value in pairs if name == ROOM)])
    others = (f"{name}={value}" for name, sign, value in pairs if name and sign and name != ROOM)
    return ":".join((f"{ROOM}={room}", *others))


def _bytes(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0


def own_filters() -> str:
    """The value of ``FILTERS``; empty where the system does not tell it. Source: proc_pid_status(5)."""
    try:
        with open("/proc/self/status", "rb", buffering=0) as file:  # noqa: PTH123
            lines = file.read(1 << 16).splitlines()
    except OSError:
        return ""
    found = dict(line.split(b":\t", 1) for line in lines if line.startswith(b"Seccomp") and b":\t" in line)
    return f"{int(found.get(b'Seccomp', -1))}:{int(found.get(b'Seccomp_filters', -1))}"


def time_out_s() -> float:
    """How many seconds a program waits for one answer at most, as its library reads the variable."""
    given = os.environ.get(TIMEOUT, "")
    limit = int(given[:9]) if given.isascii() and given.isdigit() else 0
    return (limit if 0 < limit <= _LONGEST_MS else _USUAL_MS) / 1000


def step_s() -> float:
    """How many seconds each of three steps of an answer may take, so that the program still waits after them.

    They are the start of the server, reading headers, and waiting for another build's lock.
    """
    return 0.3 * time_out_s()


def probe_s() -> float:
    """How many seconds an answer may wait for the probe; with ``step_s`` less than a program waits."""
    return 0.4 * time_out_s()


def drain_s() -> float:
    """How many seconds the end of a run waits for builds that are still being stored."""
    return 2 * time_out_s()


def without_us(environ: "Mapping[str, str]", libraries: Libraries) -> dict[str, str]:
    """The environment of a program as it would be without ``gpucache run``."""
    left = {name: value for name, value in environ.items() if name not in (SOCKET, ROOTS, FILTERS)}
    for name, library in ((LAYERS, libraries.layer), (AUDIT, libraries.audit)):
        if library and name in left:
            others = _others(left.pop(name), library)
            if others:
                left[name] = os.pathsep.join(others)
    own = left.pop(OWN_TUNABLES, None)
    if libraries.audit and left.get(TUNABLES) == with_room(own or ""):
        del left[TUNABLES]
        left |= {} if own is None else {TUNABLES: own}
    return left


def _others(value: str, library: str) -> tuple[str, ...]:
    """The other entries of a list of libraries, next to ours, of which an exported layer has copies."""
    name = os.path.basename(library)
    return tuple(part for part in value.split(os.pathsep) if part and os.path.basename(part) != name)
