"""Clusters on loopback whose workers build for ``warm --on``."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_text
from tests.patience import wait_until

_GPUCACHE = (sys.executable, "-m", "gpucache")


class Dask:
    """A scheduler and workers on loopback, each worker with a nanny, as they are by default."""

    def __init__(self, place: Path, environments: Sequence[Mapping[str, str]]) -> None:
        self._ends, self._place = ExitStack(), place
        log = self._start("scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0")
        wait_until(lambda: "Scheduler at:" in log.read_text())
        found = re.search(r"Scheduler at:\s+(tcp://\S+)", log.read_text())
        assert found
        self.address, self.environ = found[1], os.environ
        self.workers: list[subprocess.Popen[bytes]] = []
        words = ("worker", found[1], "--nthreads", "1", "--local-directory", str(place))
        logs = [self._start(f"worker{n}", *words, env=env) for n, env in enumerate(environments)]
        wait_until(lambda: all("Registered to" in log.read_text() for log in logs))

    def _start(self, name: str, *words: str, env: Mapping[str, str] = os.environ) -> Path:
        log = self._place / f"{name}.log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "dask", *words, "--no-dashboard"],
                env={**os.environ, **env},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._ends.callback(child.wait)
        self._ends.callback(child.kill)
        self._ends.callback(child.terminate)
        if words[0] == "worker":
            self.workers.append(child)
        return log

    def command(self, words: Sequence[object]) -> list[str]:
        return [*_GPUCACHE, *map(str, words), "--on", f"dask:{self.address}"]

    def close(self) -> None:
        self._ends.close()


class Mpi:
    """``mpiexec`` with a process that asks and a worker for each of some environments."""

    def __init__(self, place: Path, environments: Sequence[Mapping[str, str]]) -> None:
        if shutil.which("mpiexec") is None:
            pytest.skip("mpiexec is not installed")
        # The wheel of mpi4py looks for MPICH under the name that others than Debian give it.
        for library in Path("/usr/lib").glob("*/libmpich.so.12"):
            (place / "libmpi.so.12").symlink_to(library)
        self.environ = {**os.environ, "LD_LIBRARY_PATH": str(place)}
        if run_text([sys.executable, "-c", "from mpi4py import MPI"], env=self.environ).returncode:
            pytest.skip("mpi4py does not load an MPI here")
        self._environments = ({}, *environments)

    def command(self, words: Sequence[object]) -> list[str]:
        command = ["mpiexec"]
        for environ in self._environments:
            variables = [word for pair in environ.items() for word in ("-env", *pair)]
            command += [":"] * (len(command) > 1) + ["-n", "1", *variables]
            command += [*_GPUCACHE, *map(str, words), "--on", "mpi"]
        return command

    def close(self) -> None:
        """Nothing runs between two commands."""


def compiling(roots: Iterable[subprocess.Popen[Any]]) -> dict[int, subprocess.Popen[Any]]:
    """The processes of jobs below some others, each with that one."""
    begun = {one.pid: one for one in roots}
    found = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            pid = above = int(file.parent.name)
            if b"engine.warm.elsewhere" not in file.read_bytes():
                continue
            while above > 1 and above not in begun:
                above = parent(above)
            if above in begun:
                found[pid] = begun[above]
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
