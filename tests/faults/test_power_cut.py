"""A power cut at any moment, on a disk that keeps in any order what was not synced."""

import os
import random
import shutil
import stat
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Found
from gpucache.store.records import Row
from tests.store.conftest import build_entry
from tests.store.test_records import _keep, _of_entry
from tests.trials import trials

pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(os.name != "posix", reason="without descriptors of directories nothing is synced"),
]
_ENTRIES = [build_entry(f"{number}", b"payload %d" % number * 50) for number in range(20)]
_ROWS = [_of_entry(one, b"source of %s" % one.key.hex.encode()) for one in _ENTRIES]
_MEMO = ("c" * 64, b"what headers include" * 20)


@dataclass
class _Step:
    """A change to a disk: new bytes of a file, or of a name in a directory."""

    inode: int
    """The file whose bytes these are, or the directory."""
    data: bytes | None = None
    """All bytes of the file after a write; None for a change of names."""
    names: dict[str, int | None] = field(default_factory=dict)
    """The file or directory of each name from now on; None where one is gone."""
    synced: int | None = None
    """The number of steps after which it survives; None if it never does for certain."""


class _Disk:
    """The changes that are made below a directory, in their order, with what was synced when."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.steps, self.folders = root, list[_Step](), {root.stat().st_ino}
        self._real = {
            name: getattr(os, name) for name in ("open", "write", "fsync", "replace", "unlink", "mkdir")
        }
        for name in self._real:
            patch.setattr(os, name, getattr(self, f"_{name}"))

    def _inode(self, place: "int | str | Path | None") -> int:
        return os.stat(self.root if place is None else place).st_ino  # noqa: PTH116 - of a descriptor, too

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        new = bool(flags & os.O_CREAT) and not _exists(path, dir_fd)
        fd: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        if new and dir_fd is not None:
            self.steps.append(_Step(self._inode(dir_fd), names={path: self._inode(fd)}))
            self.steps.append(_Step(self._inode(fd), data=b""))
        return fd

    def _write(self, fd: int, data: Any) -> int:
        done: int = self._real["write"](fd, data)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            self.steps.append(_Step(self._inode(fd), data=Path(f"/proc/self/fd/{fd}").read_bytes()))
        return done

    def _fsync(self, fd: int) -> None:
        self._real["fsync"](fd)
        inode = self._inode(fd)
        self._survive(one for one in self.steps if one.inode == inode)
        while inode in self.folders:  # with the names on the way to it, as on the file systems of Linux
            outer = [one for one in self.steps if inode in one.names.values()]
            self._survive(outer)
            inode = outer[0].inode if outer else 0

    def _survive(self, steps: Iterable[_Step]) -> None:
        for one in steps:
            one.synced = len(self.steps) if one.synced is None else one.synced

    def _replace(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        inode = os.stat(old, dir_fd=src_dir_fd).st_ino
        self._real["replace"](old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self.steps.append(_Step(self._inode(src_dir_fd), names={old: None}))
        self.steps.append(_Step(self._inode(dst_dir_fd), names={new: inode}))

    def _unlink(self, name: str, *, dir_fd: int) -> None:
        self._real["unlink"](name, dir_fd=dir_fd)
        self.steps.append(_Step(self._inode(dir_fd), names={name: None}))

    def _mkdir(self, name: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._real["mkdir"](name, mode, dir_fd=dir_fd)
        if dir_fd is not None:
            inode = os.stat(name, dir_fd=dir_fd).st_ino
            self.folders.add(inode)
            self.steps.append(_Step(self._inode(dir_fd), names={name: inode}))

    def after(self, moment: int, chance: random.Random, place: Path) -> None:
        """Make a directory as the disk may have it after a power cut at a moment."""
        data, names = dict[int, bytes](), dict[int, dict[str, int]]()
        before = self.steps[:moment]
        for one in before:
            if one.synced is not None and one.synced <= moment:
                whole = True
            elif chance.random() < 0.5:
                whole = False
            else:
                continue
            if one.data is not None:
                data[one.inode] = one.data if whole else _torn(one.data, chance)
            for name, inode in one.names.items():
                here = names.setdefault(one.inode, {})
                here.pop(name, None)
                if inode is not None:
                    here[name] = inode

        def fill(inode: int, path: Path) -> None:
            path.mkdir(0o700)
            for name, each in names.get(inode, {}).items():
                if each in self.folders:
                    fill(each, path / name)
                else:
                    (path / name).write_bytes(data.get(each, b""))
                    (path / name).chmod(0o600)

        fill(self.root.stat().st_ino, place)


def _exists(path: Any, dir_fd: int | None) -> bool:
    try:
        os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _torn(data: bytes, chance: random.Random) -> bytes:
    """A part of bytes that were not synced, perhaps with zeros in place of the rest."""
    size = chance.choice((0, len(data), chance.randrange(len(data) + 1)))
    return data[:size] + bytes(len(data) - size) * chance.randrange(2)


def _wrong(store: DirectoryStore, kept: int) -> list[str]:
    """The faults of a cache after a power cut, given the number of entries that were synced."""
    wrong = []
    rows: set[Row] = {row for one in _ROWS for row in store.rows.of(one.name)} | {*store.rows.each()}
    if not rows <= {*_ROWS}:
        wrong.append("a row is another one")
    if store.recall(_MEMO[0]) not in (None, _MEMO[1]):
        wrong.append("a memo has other bytes")
    for number, entry in enumerate(_ENTRIES):
        found = store.get(entry.key)
        if isinstance(found, Found) and (found.payload, found.head) != (entry.payload, entry.head):
            wrong.append(f"entry {number} has other bytes")
        if number < kept and not isinstance(found, Found):
            wrong.append(f"entry {number} is lost: {found}")
    store.history.events("program-1")
    return wrong


@pytest.mark.parametrize("together", [True, False])
def test_what_survives_a_power_cut_is_right(tmp_path: Path, *, together: bool) -> None:
    """Entries that are synced one by one or together, with rows and a memo: each is right, damaged or gone,
    and from its sync on it is there."""
    root, place = tmp_path / "root", tmp_path / "after"
    root.mkdir(0o700)
    with pytest.MonkeyPatch.context() as patch:
        made = _Disk(root, patch)
        store = DirectoryStore(made.root, writable=True)
        kept = dict[int, int]()
        for number, (entry, row) in enumerate(zip(_ENTRIES, _ROWS, strict=True)):
            with store.settling() if together else nullcontext():
                store.publish(entry)
                _keep(store, row)
            kept[len(made.steps)] = 16 * (number >= 15) if together else number + 1
        store.remember(*_MEMO)
        store.sync_all()
        kept[len(made.steps)] = len(_ENTRIES)
    chance = random.Random(11)
    for trial in range(trials(100, 10_000)):
        moment = len(made.steps) if trial % 4 == 0 else chance.randrange(len(made.steps) + 1)
        made.after(moment, chance, place)
        there = max((count for since, count in kept.items() if since <= moment), default=0)
        assert _wrong(DirectoryStore(place, writable=True), there) == [], (trial, moment)
        shutil.rmtree(place)
