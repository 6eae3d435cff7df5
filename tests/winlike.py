"""Runs gpucache where the names that only POSIX systems have are gone, and ``sys.platform`` is ``win32``.

    python -m tests.winlike modules        import every module but those for Linux
    python -m tests.winlike verify ...     a command line

It is no Windows: files, paths and processes are this machine's. It shows which names an import or a command
reaches that are not there.
"""

import importlib
import os
import pkgutil
import signal
import socket
import sys
from collections.abc import Sequence

_LOADED = """
concurrent.futures.process http.client importlib.metadata logging multiprocessing.connection
multiprocessing.popen_spawn_posix multiprocessing.reduction multiprocessing.spawn pathlib platform shutil
sqlite3 ssl subprocess tempfile typing click click.testing cuda.pathfinder numpy platformdirs pyopencl
"""
"""Modules of the standard library and of others, which look for the names when they are imported."""
_MODULES = frozenset({"fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "syslog"})
_OS = """
geteuid getuid getgid getegid fork forkpty setsid statvfs fstatvfs sched_getaffinity fchmod fchown chown
lchown killpg getpgid setpgid O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK O_TMPFILE O_PATH pidfd_open
memfd_create posix_spawn posix_spawnp mkfifo mknod getpriority setpriority getgroups fdatasync pread pwrite
posix_fadvise posix_fallocate waitid WUNTRACED sysconf confstr pipe2 listxattr getxattr setxattr
register_at_fork
"""
_SIGNALS = (
    "SIGHUP SIGPIPE SIGCHLD SIGALRM SIGUSR1 SIGUSR2 SIGQUIT SIGSTOP SIGCONT SIGTSTP pthread_sigmask sigwait"
)
"""Not SIGKILL and ``os.WNOHANG``, with which ``subprocess`` of this machine ends a process."""
LEFT_OUT = (
    "gpucache.serve",
    "gpucache.cli.running",
    "gpucache.native.build_hook",
    "gpucache.cupy",
    "gpucache.triton",
)
"""Modules of ``run``, ``record`` and ``export layer``, of the package's build, and for other libraries."""


class _Gone:
    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name in _MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}")


def load() -> None:
    """Import what would miss the names, or take another platform for this machine's."""
    for name in _LOADED.split():
        importlib.import_module(name)


def remove() -> None:
    load()
    for name in _MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Gone)
    for module, names in ((os, _OS), (signal, _SIGNALS), (socket, "SCM_RIGHTS SO_PEERCRED")):
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    os.supports_dir_fd.clear()
    os.supports_fd.clear()
    sys.platform = "win32"


def _import_all() -> None:
    import gpucache

    for module in pkgutil.walk_packages(gpucache.__path__, "gpucache.", onerror=str):
        if not module.name.startswith(LEFT_OUT):
            importlib.import_module(module.name)


def main(words: Sequence[str]) -> int:
    """Import everything, or run a command line; gives the exit code."""
    remove()
    if list(words) == ["modules"]:
        _import_all()
        return 0
    from gpucache.cli import main as run

    return run(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
