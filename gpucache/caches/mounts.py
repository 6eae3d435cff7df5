"""The mounts of this process, and which of them contains a path.

Owns the reading of ``/proc/self/mountinfo`` (proc(5)) and the kinds of file systems. Without that file
nothing is known. Must not know which caches are on a mount, or what is wrong with one.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

_LIMIT_BYTES = 4 << 20
_ESCAPED = re.compile(r"\\([0-7]{3})")
_NETWORK = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.s3fs",
        "fuse.sshfs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "pvfs2", "smb3", "smbfs",
    }
)  # fmt: skip
_MEMORY = frozenset({"tmpfs", "ramfs"})
_LAYER = frozenset({"overlay", "aufs", "fuse-overlayfs", "fuse.fuse-overlayfs"})


class Medium(StrEnum):
    """The kind of place that a file system is for a cache."""

    DISK = "disk"
    MEMORY = "memory"
    NETWORK = "network"
    LAYER = "layer"


class Mount(NamedTuple):
    """One mount: its point, its kind, and its options (its own and its file system's)."""

    point: str
    kind: str
    options: frozenset[str]

    @property
    def medium(self) -> Medium:
        """The kind of place it is."""
        for medium, kinds in ((Medium.NETWORK, _NETWORK), (Medium.MEMORY, _MEMORY), (Medium.LAYER, _LAYER)):
            if self.kind in kinds:
                return medium
        return Medium.DISK


def parse(text: str) -> tuple[Mount, ...]:
    """The mounts of a mountinfo, in its order; invalid lines are left out."""
    return tuple(filter(None, map(_mount, text.splitlines())))


def mount_of(path: Path, mounts: tuple[Mount, ...]) -> Mount | None:
    """The mount that contains an absolute path: the last one with the longest mount point above it."""
    holding = [mount for mount in mounts if path.is_relative_to(mount.point)]
    if not holding:
        return None
    longest = max(len(Path(mount.point).parts) for mount in holding)
    return next(mount for mount in reversed(holding) if len(Path(mount.point).parts) == longest)


def mounts() -> tuple[Mount, ...]:
    """The mounts of this process; none if the system does not report them."""
    try:
        with Path("/proc/self/mountinfo").open("rb") as file:
            return parse(file.read(_LIMIT_BYTES).decode(errors="surrogateescape"))
    except OSError:
        return ()


def _mount(line: str) -> Mount | None:
    own, dash, rest = line.partition(" - ")
    fields, kinds = own.split(" "), rest.split(" ")
    if not dash or len(fields) < 6 or len(kinds) < 3:
        return None
    options = frozenset((*fields[5].split(","), *kinds[2].split(",")))
    return Mount(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4]), kinds[0], options)
