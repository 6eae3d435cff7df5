"""Caches that gpucache finds, measures and moves without reading their format: each file is an entry.

Owns the rules common to all of them. An entry is named by its path below the root, and its key is a digest of
that path. Its payload kind is reported if the bytes identify it; the only problems reported are files that
other users own or may write to, and nothing is removed, as the owner's rules for single files are unknown.

A system is one if its row of ``systems`` says by which ``signs`` it is recognised. Once its format becomes
known, it gets a class that derives from ``Format``, and drops the facts that only this class requires.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.verify import Checked
from gpucache.caches import files, places
from gpucache.caches.files import Files
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Whose
from gpucache.payload import PayloadKind, describe

_SCANNED_BYTES = 4096


class OpaqueFormat(Format):
    """A cache of which gpucache knows the place and the names that identify it: see ``Places.signs``."""

    layout = Layout(())
    trusts_variables = True
    wanted = {}
    opaque = "gpucache cannot parse this format, so the inputs of an entry are unknown"
    _noted = False

    @classmethod
    def whose(cls, path: Path) -> Whose:
        return Layout(cls.signs).whose(path)

    def items(self, prefix: str) -> Iterator[Files]:
        """Every file but links and empty ones, which several owners leave as locks or at each start."""
        with files.open_folder(self.root) as folder:
            for path, status, _why in files.below(folder):
                if status is None:
                    self.closed_folders[self.root / path] = f"{self.root / path} was not looked into: {_why}"
                kept = status is not None and stat.S_ISREG(status.st_mode) and status.st_size
                if status is None or not kept or re.fullmatch(self.unlisted, path):
                    continue
                key = hashlib.sha256(os.fsencode(path), usedforsecurity=False).hexdigest()
                if key.startswith(prefix):
                    *above, name = path.split("/")
                    yield Files(self.root, tuple(above), key, {name: status})

    def beside(self) -> Iterator[Checked]:
        with files.open_folder(self.root) as folder:
            if why := places.distrust(folder.lstat(os.curdir), move=self.place.move):
                yield self.told(self.root, Problem(FindingKind.UNTRUSTED, why))
            for name, status, unread in files.below(folder):
                path = self.root / name
                if status is None:
                    detail = f"{path} was not looked into: {unread}"
                    yield self.told(path, Problem(FindingKind.UNSUPPORTED, detail))
                elif stat.S_ISDIR(status.st_mode) and (why := places.distrust(status, move=self.place.move)):
                    yield self.told(path, Problem(FindingKind.UNTRUSTED, f"of the directory {name}: {why}"))

    def look(self, item: Files) -> CacheEntry:
        (name,) = item.seen
        info = describe(item.part(name, 0, _SCANNED_BYTES))
        return self.entry(item)._replace(
            program="/".join((*item.parts, name)),
            target=info.target,
            artifact_kind="" if info.kind is PayloadKind.UNKNOWN else info.kind.value,
        )

    def stays(self, item: Files) -> str:
        return (
            f"gpucache does not know by which rules {self.owner} lets single files go; remove {self.root} as "
            "a whole while no program uses it"
        )

    def check(self, item: Files) -> Iterator[Problem]:
        item.again()
        yield from ()

    def notes(self, item: Files) -> Iterator[str]:
        if not self._noted:
            self._noted = True
            yield (
                f"gpucache cannot parse {self.owner}'s format, so nothing in this cache can be checked but "
                "owners and modes"
            )
