"""Which mount holds a path, told from mountinfo texts."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches import places
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


@pytest.mark.skipif(sys.platform == "win32", reason="its paths do not begin with a slash")
@pytest.mark.parametrize(
    ("top", "kind", "volume"),
    [
        ("overlay", "tmpfs", True),
        ("overlay", "overlay", True),
        ("ext4", "tmpfs", False),
    ],
)
def test_a_volume_is_a_remedy_in_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: str, kind: str, volume: bool
) -> None:
    """A cache in memory gets the line of docker in a container alone, with the path as a volume needs it."""
    root = tmp_path.resolve() / "cache"
    root.mkdir()
    (tmp_path / "other").mkdir()
    text = f"1 1 0:1 / / rw - {top} x rw\n2 1 0:2 / {tmp_path.resolve()} rw - {kind} x rw"
    monkeypatch.setattr(places, "mounts", lambda: parse(text))
    (found,) = places.problems(tmp_path / "other" / ".." / "cache", move="set X")
    assert "set X" in found and (f"docker run -v gpu-caches:{root}" in found) is volume
    assert volume or "docker" not in found
