"""Damage to one real entry of libsycl's cache, as from a killed program, a full disk or an edit.

Each takes the directory of the entry (its number is 0) and the cache's root.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OLD_S = 1_000_000_000
HUGE = (1 << 60).to_bytes(8, "little")


@dataclass(frozen=True, slots=True)
class Damage:
    """How to do it, and the finding it must give."""

    do: Callable[[Path, Path], None]
    kind: str


def age(path: Path) -> None:
    """Make a lock old enough to be stale."""
    os.utime(path, (OLD_S, OLD_S))


def _old_lock(path: Path) -> None:
    path.touch()
    age(path)


def _patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def _copy(group: Path, number: int) -> None:
    for suffix in (".bin", ".src", "_access_time.txt"):
        shutil.copy2(group / f"0{suffix}", group / f"{number}{suffix}")


def _drop(group: Path, number: int) -> None:
    for suffix in (".bin", ".src", "_access_time.txt"):
        (group / f"{number}{suffix}").unlink()


def killed_writer(group: Path, root: Path) -> None:
    _copy(group, 1)
    _drop(group, 0)
    _old_lock(group / "0.lock")


def hole(group: Path, root: Path) -> None:
    _copy(group, 1)
    _copy(group, 2)
    _drop(group, 0)


def stale_lock(group: Path, root: Path) -> None:
    _old_lock(group / "0.lock")


def truncated_binary(group: Path, root: Path) -> None:
    _copy(group, 1)
    os.truncate(group / "0.bin", 1000)


def short_binary(group: Path, root: Path) -> None:
    os.truncate(group / "0.bin", 7)


def huge_binary(group: Path, root: Path) -> None:
    _patch(group / "0.bin", 8, HUGE)


def corrupt_payload(group: Path, root: Path) -> None:
    _patch(group / "0.bin", 16, bytes(64))


def another_binary(group: Path, root: Path) -> None:
    other = next(path for path in sorted(root.rglob("0.bin")) if path.parent != group)
    (group / "0.bin").write_bytes(other.read_bytes())


def huge_source(group: Path, root: Path) -> None:
    _patch(group / "0.src", 0, HUGE)


def empty_source(group: Path, root: Path) -> None:
    os.truncate(group / "0.src", 0)


def truncated_source(group: Path, root: Path) -> None:
    os.truncate(group / "0.src", 400)


def flipped_source(group: Path, root: Path) -> None:
    data = (group / "0.src").read_bytes()
    _patch(group / "0.src", len(data) - 5, bytes([data[-5] ^ 1]))


def no_source(group: Path, root: Path) -> None:
    (group / "0.src").unlink()


def no_binary(group: Path, root: Path) -> None:
    (group / "0.bin").unlink()


def copies(group: Path, root: Path) -> None:
    for number in (1, 2, 3):
        _copy(group, number)


def eviction_in_progress(group: Path, root: Path) -> None:
    _old_lock(root.with_name(root.name + "_eviction_in_progress.lock"))


def bare_eviction_in_progress(group: Path, root: Path) -> None:
    shutil.rmtree(group)  # so that the program has something to add, and would hang
    root.with_name(root.name + "_eviction_in_progress").touch()


def locked_size(group: Path, root: Path) -> None:
    shutil.rmtree(group)
    _old_lock(root / "cache_size.txt.lock")


def garbage_size(group: Path, root: Path) -> None:
    shutil.rmtree(group)
    (root / "cache_size.txt").write_bytes(bytes(8))  # as a crash may leave it


def wrong_size(group: Path, root: Path) -> None:
    (root / "cache_size.txt").write_text("77000000")


def locked_times(group: Path, root: Path) -> None:
    _old_lock(group / "0_access_time.txt.lock")


def evicted_by_hand(group: Path, root: Path) -> None:
    (group / "0.bin").unlink()
    (group / "0.src").unlink()


DAMAGES = (
    Damage(killed_writer, "misplaced"),
    Damage(hole, "misplaced"),
    Damage(stale_lock, "misplaced"),
    Damage(truncated_binary, "truncated"),
    Damage(short_binary, "truncated"),
    Damage(huge_binary, "truncated"),
    Damage(corrupt_payload, "mislabelled"),
    Damage(another_binary, "mislabelled"),
    Damage(huge_source, "truncated"),
    Damage(empty_source, "truncated"),
    Damage(truncated_source, "truncated"),
    Damage(flipped_source, "misplaced"),
    Damage(no_source, "orphan"),
    Damage(no_binary, "orphan"),
    Damage(eviction_in_progress, "misplaced"),
    Damage(bare_eviction_in_progress, "misplaced"),
    Damage(locked_size, "misplaced"),
    Damage(garbage_size, "corrupt"),
    Damage(wrong_size, "orphan"),
    Damage(locked_times, "misplaced"),
    Damage(evicted_by_hand, "orphan"),
)
