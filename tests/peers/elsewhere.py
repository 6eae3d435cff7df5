"""Two users on one machine who share nothing: uids, homes, projects, caches and installs of an owner."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gpucache.answers.entries import Location
from gpucache.caches.interface import Cache
from gpucache.caches.portable import PortableEntry, Restored
from gpucache.caches.registry import of_others
from tests.children import run_text

needs_sandbox = pytest.mark.skipif(
    shutil.which("bwrap") is None
    or subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", "1002", "true"],
        capture_output=True,
        check=False,
    ).returncode
    != 0
    or shutil.which("strace") is None,
    reason="bubblewrap and strace do not work here",
)


@dataclass(frozen=True)
class User:
    """One of the two users, who cannot see hidden places."""

    uid: int
    home: Path
    site: Path | None = None
    """The directory of packages of the user's own install; None for that of the tests."""
    hidden: Sequence[Path] = ()
    private: Path | None = None
    """A directory that differs for each user, ``own``."""

    @property
    def project(self) -> Path:
        return self.home / f"project-of-{self.uid}"

    @property
    def own(self) -> Path:
        """The directory that this user sees as the private one."""
        place = self.home / "private"
        place.mkdir(parents=True, exist_ok=True)
        return place

    @contextmanager
    def shown(self) -> Iterator[None]:
        """The private directory as this user sees it, for this process as well."""
        assert self.private is not None
        self.private.rmdir()
        shutil.copytree(self.own, self.private)
        yield
        shutil.rmtree(self.private)
        self.private.mkdir()

    def run(
        self, program: str, environ: Mapping[str, str], *, said: str = "", fails: bool = False
    ) -> tuple[str, list[str]]:
        """The output of a Python program that prints, and of the programs that it starts."""
        self.project.mkdir(parents=True, exist_ok=True)
        (self.project / "program.py").write_text(program, encoding="ascii")
        trace = self.home / "trace"
        # The Python below an environment is the same for both, as are the system's libraries.
        python = sys.executable if self.site is None else getattr(sys, "_base_executable", sys.executable)
        command = [
            "bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", str(self.uid), "--gid", str(self.uid),
            *(word for place in self.hidden for word in ("--tmpfs", str(place))),
            *(("--bind", str(self.own), str(self.private)) if self.private else ()),
            "--chdir", str(self.project),
            "strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=execve", "-o", str(trace),
            python, "program.py",
        ]  # fmt: skip
        done = run_text(
            command,
            env={
                "HOME": str(self.home),
                "PATH": os.environ["PATH"],
                **({"PYTHONPATH": str(self.site)} if self.site else {}),
                **({"PRIVATE": str(self.private)} if self.private else {}),
                **environ,
            },
            input=said,
        )
        assert bool(done.returncode) == fails, done.stdout + done.stderr
        started = [line.split('"')[1] for line in trace.read_text().splitlines() if line.endswith("= 0")]
        return done.stdout + done.stderr, started[1:]


def users(tmp_path: Path, *packages: str) -> tuple[User, User]:
    """The two users; the second has another install of some packages, and cannot see the first's places."""
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir(0o755)
    here.mkdir(0o755)
    first = User(1001, there / "home")
    if not packages:
        return first, User(1002, here / "home", hidden=[there])
    found = _with_requirements(packages)
    if sys.prefix == sys.base_prefix:
        pytest.skip("the packages are those of the system's Python, which cannot be hidden")
    places = {Path(str(distribution(name).locate_file(""))) for name in found}
    site = here / "other-install" / "lib" / "python" / "site-packages"
    for name in found:
        _install(name, site)
    return first, User(1002, here / "home", site, [there, Path(sys.prefix), *places])


def with_private(tmp_path: Path, *some: User) -> Iterator[User]:
    """Users who each have another directory in one place, which the programs find as ``PRIVATE``."""
    (tmp_path / "private").mkdir()
    return (replace(one, private=tmp_path / "private") for one in some)


def opened(system: str, place: Path) -> Cache:
    """The cache of a system at a place."""
    return of_others(system).open(Location(system, str(place), "--cache", enabled=True))


def packed(system: str, place: Path) -> list[PortableEntry]:
    """All entries of a cache in their portable form."""
    cache = opened(system, place)
    return [cache.pack(entry) for entry in cache.scan()]


def move(system: str, there: Path, here: Path) -> list[PortableEntry]:
    """Move all entries of a cache to another place; returns the entries."""
    found = packed(system, there)
    done = restore(system, here, found)
    assert found and all(one.done for one in done), done
    return found


def restore(system: str, place: Path, entries: Sequence[PortableEntry]) -> list[Restored]:
    return list(opened(system, place).restore(entries))


def seen(place: Path) -> dict[str, tuple[int, int]]:
    """All non-empty files below a place by path, with inode and time of writing."""
    found = ((path, path.stat()) for path in place.rglob("*") if path.is_file())
    return {
        str(path.relative_to(place)): (status.st_ino, status.st_mtime_ns)
        for path, status in found
        if status.st_size
    }


def _with_requirements(names: Sequence[str]) -> set[str]:
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        for text in distribution(name).requires or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                pending.append(wanted.name)
    return found


def _install(name: str, site: Path) -> None:
    """Another copy of an installed distribution, of the same files if the file system has links."""
    made = distribution(name)
    for file in made.files or ():
        into, path = Path(os.path.normpath(site / file)), Path(str(made.locate_file(file)))
        if not into.is_relative_to(site.parents[2]) or not path.is_file():
            continue
        into.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, into)
        except FileExistsError:  # some are listed twice
            continue
        except OSError:
            shutil.copy2(path, into)
