"""Which mount holds a path, told from mountinfo texts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches.places import Medium, mount_of, mounts, parse

_TEXT = """\
27 1 254:0 / / rw,relatime - overlay overlay rw,lowerdir=/l
28 27 0:25 / /home rw,nosuid - nfs4 server:/home rw,vers=4.2
29 28 0:26 / /home/me/scratch\\040disk rw,noexec - tmpfs tmpfs rw,size=4k
30 27 0:27 / /data ro,relatime shared:1 master:2 - ext4 /dev/sda rw
31 27 0:28 / /data rw,relatime - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("path", "medium"),
    [
        ("/opt/cache", Medium.LAYER),
        ("/home/me/.cache", Medium.NETWORK),
        ("/home/me/scratch disk/cache", Medium.MEMORY),
        ("/homeless", Medium.LAYER),
        ("/data/x", Medium.DISK),
    ],
)
def test_the_longest_point_above_a_path_holds_it(path: str, medium: Medium) -> None:
    """A path is on the mount whose point is nearest above it, by whole names."""
    mount = mount_of(Path(path), parse(_TEXT))
    assert mount is not None and mount.medium is medium


def test_a_mount_over_another_wins() -> None:
    """Of two mounts on one point the later one is seen."""
    mount = mount_of(Path("/data"), parse(_TEXT))
    assert mount is not None and mount.kind == "xfs"


def test_options_of_mount_and_file_system_are_joined() -> None:
    """Whether a mount is noexec stands with its own options, its size with those of the file system."""
    mount = mount_of(Path("/home/me/scratch disk"), parse(_TEXT))
    assert mount is not None and {"noexec", "size=4k"} <= mount.options


@given(st.text())
def test_any_text_reads(text: str) -> None:
    """Lines that are no mounts are left out, and nothing is raised."""
    assert all(mount.kind for mount in parse(text) if mount.point)


def test_this_machine_has_a_root() -> None:
    """The mounts of this process hold the root directory, where the system tells them at all."""
    found = mounts()
    assert not found or mount_of(Path("/"), found) is not None
