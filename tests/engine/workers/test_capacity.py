"""How much of the machine workers may use, read from the kernel's files, and the turns they wait for."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpucache.engine.workers import capacity
from gpucache.engine.workers.capacity import (
    SHARED,
    Turns,
    cores,
    free_bytes,
    memory_share,
    turn_count,
    turns,
    worker_count,
)
from tests.unprivileged import NOBODY, as_nobody, needs_root

GIB = 1024**3
MIB = 1024**2


@pytest.fixture
def kernel(tmp_path: Path) -> Callable[[dict[str, str]], tuple[Path, Path]]:
    """The kernel's proc and control group files on a machine with 8 GiB of free memory."""

    def write(files: dict[str, str]) -> tuple[Path, Path]:
        meminfo = f"MemTotal: {16 * MIB} kB\nMemAvailable:   {8 * MIB} kB\n"
        for name, text in {"proc/meminfo": meminfo, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="ascii")
        return tmp_path / "proc", tmp_path / "groups"

    return write


_MEMORY: dict[str, tuple[dict[str, str], int]] = {
    "no group": ({}, 8 * GIB),
    "a container": (
        {"proc/self/cgroup": "0::/\n", "groups/memory.max": f"{2 * GIB}", "groups/memory.current": f"{GIB}"},
        GIB,
    ),
    "a group without a limit": (
        {"proc/self/cgroup": "0::/\n", "groups/memory.max": "max\n", "groups/memory.current": f"{GIB}"},
        8 * GIB,
    ),
    "a group within one that has less": (
        {
            "proc/self/cgroup": "0::/user.slice/job\n",
            "groups/user.slice/memory.max": f"{3 * GIB}\n",
            "groups/user.slice/memory.current": f"{GIB}\n",
            "groups/user.slice/job/memory.max": f"{4 * GIB}\n",
            "groups/user.slice/job/memory.current": f"{MIB}\n",
        },
        2 * GIB,
    ),
    "files that were read": (
        {
            "proc/self/cgroup": "0::/\n",
            "groups/memory.max": f"{2 * GIB}",
            "groups/memory.current": f"{2 * GIB}",
            "groups/memory.stat": f"anon {MIB}\ninactive_file {GIB}\n",
        },
        GIB,
    ),
    "the first version": (
        {
            "proc/self/cgroup": "4:memory:/docker/a\n3:cpu,cpuacct:/\n0::/\n",
            "groups/memory/docker/a/memory.limit_in_bytes": f"{2 * GIB}\n",
            "groups/memory/docker/a/memory.usage_in_bytes": f"{GIB}\n",
            "groups/memory/docker/a/memory.stat": f"inactive_file 1\ntotal_inactive_file {MIB}\n",
        },
        GIB + MIB,
    ),
    "the first version in a container": (
        {
            "proc/self/cgroup": "4:memory:/docker/a\n",
            "groups/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
            "groups/memory/memory.usage_in_bytes": f"{GIB}\n",
        },
        GIB,
    ),
    "more used than there is": (
        {"proc/self/cgroup": "0::/\n", "groups/memory.max": "1", "groups/memory.current": "2"},
        0,
    ),
}


@pytest.mark.parametrize("case", _MEMORY)
def test_free_memory_is_that_of_the_narrowest_group(
    kernel: Callable[..., tuple[Path, Path]], case: str
) -> None:
    """The machine's free memory, or a control group's if less, of either version, without its page cache."""
    files, expected = _MEMORY[case]
    assert free_bytes(*kernel(files)) == expected


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/a\n",
            "groups/a/cpu.max": "max 100000\n",
            "groups/cpu.max": "100000 100000\n",
        },
        {
            "proc/self/cgroup": "2:cpu,cpuacct:/a\n",
            "groups/cpu/a/cpu.cfs_quota_us": "150000\n",
            "groups/cpu/a/cpu.cfs_period_us": "100000\n",
        },
    ],
)
def test_cores_are_those_of_the_narrowest_group(
    kernel: Callable[..., tuple[Path, Path]], files: dict[str, str]
) -> None:
    """A quota of a control group of either version is a number of cores, at least one."""
    assert cores(*kernel(files)) == 1


def test_a_group_without_a_quota_has_all_cores(kernel: Callable[..., tuple[Path, Path]]) -> None:
    """The first version writes that as -1."""
    files = {
        "proc/self/cgroup": "2:cpu:/\n",
        "groups/cpu/cpu.cfs_quota_us": "-1\n",
        "groups/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert cores(*kernel(files)) == cores(*kernel({"proc/self/cgroup": ""}))


def test_no_more_workers_than_items() -> None:
    """However many cores and however much memory there is, one item has one worker."""
    assert (worker_count(0), worker_count(1)) == (1, 1)
    assert worker_count(10_000) >= 1


def test_workers_share_some_of_the_free_memory() -> None:
    """More workers get less each, never too little for a compiler, and none gets all."""
    alone, crowded = memory_share(1), memory_share(10_000)
    assert alone is not None and crowded is not None
    assert alone >= crowded == 2 * GIB
    assert alone == 2 * GIB or alone < free_bytes()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory like /dev/shm, in which any user may create files."""
    with tempfile.TemporaryDirectory(dir=SHARED) as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="turns are counted on Linux")
def test_a_turn_is_held_by_one_alone(shared: Path) -> None:
    """A turn that is taken cannot be taken again until it is given back."""
    most = 4
    with ExitStack() as others, ExitStack() as ends:
        one, other = Turns(most, ends, shared), Turns(most, others, shared)
        assert one.take()
        while one.take():
            pass
        assert 1 <= one.count <= most and not other.take()
        ends.close()
        assert other.take()


@pytest.mark.skipif(sys.platform != "linux", reason="turns are counted on Linux")
def test_nobody_waits_for_ever_for_a_turn(shared: Path) -> None:
    """The holder of all turns may be stopped: after some patience one worker starts anyway."""
    waited: list[int] = []
    with ExitStack() as ends:
        one = Turns(turn_count(), ends, shared)
        while one.take():
            pass
        with turns(2, 0.05, lambda: waited.append(1), shared) as team:
            assert waited and team.count >= 1
    with turns(3, None, lambda: None, shared) as team:
        assert team.count == 3


@pytest.mark.skipif(sys.platform != "linux", reason="turns are counted on Linux")
def test_a_queue_that_moves_is_waited_for(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as turns change hands no worker starts without one, however long the queue is."""
    monkeypatch.setattr(capacity, "_LONGEST_PAUSE_S", 0.01)
    most, calls = turn_count(), 0
    with ExitStack() as ends:

        def take_all() -> None:
            team = Turns(most, ends, shared)
            while team.take():
                pass

        def change_hands() -> None:
            nonlocal calls
            calls += 1
            if calls <= 5:
                ends.close()
                take_all()

        take_all()
        with turns(1, 2.0, change_hands, shared):
            assert calls > 5


@pytest.mark.skipif(sys.platform != "linux", reason="turns are counted on Linux")
def test_the_whole_wait_for_a_turn_is_bounded(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue in which turns change hands for ever is left after ten times the patience."""
    monkeypatch.setattr(capacity, "_LONGEST_PAUSE_S", 0.01)
    calls = 0

    def change_hands() -> None:
        nonlocal calls
        calls += 1
        assert calls < 1000
        ends.close()
        other = Turns(turn_count(), ends, shared)
        while other.take():
            pass

    with ExitStack() as ends:
        change_hands()
        with turns(1, 0.2, change_hands, shared) as team:
            assert team.count == 1


@needs_root
@pytest.mark.skipif(sys.platform != "linux", reason="turns are counted on Linux")
def test_no_other_user_can_hold_a_turn(shared: Path) -> None:
    """Neither an earlier directory of the same name nor this user's own files block a turn."""
    usual = shared / f"gpucache-turns-{os.geteuid()}"

    def squat() -> str:
        for folder in (usual, Path(f"{usual}-"), Path(f"{usual}-another")):
            folder.mkdir(mode=0o777)
        Path(f"{usual}-link").symlink_to(usual)
        return ""

    as_nobody(squat)
    with ExitStack() as ends, ExitStack() as others:
        one, other = Turns(3, ends, shared), Turns(3, others, shared)
        assert [one.take() for _ in range(4)] == [True, True, True, False]
        assert not other.take()
        (own,) = (folder for folder in shared.iterdir() if folder.lstat().st_uid != NOBODY)
        assert as_nobody(lambda: str(os.access(own / "0", os.F_OK))) == "False"
        ends.close()
        assert other.take()
