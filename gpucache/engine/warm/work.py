"""The work on one item in a worker of ``warm``: look for it once more, explain the miss, build, publish.

Owns the list of files that do not count as inputs of a program, whichever compiler reads them: those of
kernel and loader, shared objects and archives, locales and Python's modules. A compiler's own files are known
to its backend. Files are compared by device and inode, so that a covered file is covered under all its names;
if one of these names later leads to another file, the key changes only for names that the closure knows.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from gpucache.answers.lookup import Built, Hit
from gpucache.backends.interface import Backend
from gpucache.backends.registry import load_backend
from gpucache.engine.lookup import build, find
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.store_layers import Layers
from gpucache.engine.warm.plan import Job
from gpucache.model import Artifact


def build_job(open_layers: Callable[[], Layers], job: Job) -> Hit | Built:
    """A hit, or a new build; ``open_layers`` opens the layers in the worker."""
    backend = load_backend(job.request.target.backend)
    layers = open_layers()
    prepared = prepare(backend, job.request, job.toolchain, os.environ, layers)
    found = find(layers, prepared, whole=True)
    if isinstance(found, Hit):
        return found
    from gpucache.engine.explain import explain  # this module is imported for hits as well

    miss = explain(layers, prepared, found)
    if found.incomplete is not None:
        sizes = (*found.incomplete.head.local_sizes, *job.request.local_sizes)  # those that were there stay
        prepared = prepare(
            backend, job.request._replace(local_sizes=sizes), job.toolchain, os.environ, layers
        )
    return build(layers, prepared, partial(_compile_watched, backend, prepared), miss, wait_s=job.wait_s)


def _compile_watched(backend: Backend, prepared: Prepared) -> Artifact:
    """Compile, and name the files that were read and that the key does not cover, if opens can be seen."""
    from gpucache.engine.warm.work import uncovered
    from gpucache.engine.workers.opened_files import OPENED_FILES

    compile_ = partial(backend.compile, prepared.request, prepared.compilation)
    artifact, opened = OPENED_FILES.watch(compile_)
    if opened is None:
        return artifact
    own = partial(backend.own_files, prepared.compilation.inputs.toolchain)
    return artifact._replace(uncovered=uncovered(opened, prepared.closure.files, own))


_KERNEL = ("/proc", "/sys")
"""Most opened files are in these; comparing the device costs less than comparing the path."""
_SYSTEM = (
    *("/proc/", "/sys/", "/dev/", "/etc/", "/run/", "/var/lib/sss/", "/var/cache/", "/var/db/"),
    *("/usr/share/zoneinfo/", "/usr/lib/os-release"),
)
# Shared objects, which may be linker scripts, and the linker's own scripts; settings next to programs; the
# list of OpenCL drivers; names of devices; locales; Python and the files that it reads at start.
_NAMES = re.compile(
    r".*(\.so(\.[\w.-]+)?|/ldscripts/.*|/bin/[^/]+\.cfg|\.icd|\.ids(\.gz)?"
    r"|/(lib\w*|share)/locale/.*|/gconv-modules(\.cache|\.d/.*)?"
    r"|\.pyc?|\.pth|/pyvenv\.cfg|\.(dist|egg)-info/[^/]+|/openssl\.cnf)",
    re.DOTALL,
)
_BINARIES = (b"\x7fELF", b"!<arch>\n", b"!<thin>\n")
_MAGIC_BYTES = max(map(len, _BINARIES))


def uncovered(
    opened: Iterable[str], covered: Sequence[str], own: Callable[[], Sequence[str]]
) -> tuple[str, ...]:
    """The opened paths of regular files that are not covered, sorted.

    ``own`` returns the compiler's own files; a path that ends in a slash covers everything below it.
    """
    names = frozenset(covered)
    kernel = {Path(place).stat().st_dev for place in _KERNEL if Path(place).exists()}
    strange = {
        path: found
        for path in opened
        if path not in names
        and not _NAMES.fullmatch(path)
        and (found := _identity(path))
        and found[0] not in kernel
        and not os.path.realpath(path).startswith(_SYSTEM)
    }
    if not strange:
        return ()
    brought = own()
    folders = tuple(f"{os.path.realpath(path)}/" for path in brought if path.endswith("/"))
    known = {identity for path in (*covered, *brought) if (identity := _identity(path))}
    return tuple(
        path
        for path, identity in sorted(strange.items())
        if identity not in known and not os.path.realpath(path).startswith(folders) and not _is_binary(path)
    )


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of a regular file."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _is_binary(path: str) -> bool:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(_MAGIC_BYTES).startswith(_BINARIES)
    except OSError:
        return False
