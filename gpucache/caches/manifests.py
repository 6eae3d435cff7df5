"""Caches whose entries are one file each, and a manifest in JSON with its size and SHA-256."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import mega_cache
from gpucache.caches.files import LARGEST_BYTES, Files, Parts, Span
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Left
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind

_MANIFEST_BYTES = 16 << 20


class _Manifested(Format):
    """An entry that its owner compares with its manifest before it uses it."""

    bytes_field: ClassVar[str]
    digest_field: ClassVar[str]
    entry_file: ClassVar[str]
    """The ending of the file that a manifest is about."""
    holds_kind: ClassVar[str]
    checksums = True

    def look(self, item: Files) -> CacheEntry:
        missing = [one for one in (self.entry_file, ".json") if not self._named(item, one)]
        told = f"its {missing[0]} is missing; {self.owner} misses it and makes it again" if missing else ""
        problem = Problem(FindingKind.ORPHAN, told) if missing else None
        return self.entry(item)._replace(artifact_kind=self.holds_kind, damage=problem)

    def check(self, item: Files) -> Iterator[Problem]:
        if problem := self.look(item).damage:
            yield problem
            return
        again = f"{self.owner} sees it and makes it again"
        manifest = self._manifest(item)
        parts = Parts(item, self._named(item, self.entry_file), "")
        if manifest is None:
            yield Problem(FindingKind.CORRUPT, f"its manifest is no JSON object; {again}")
        elif (expected := manifest.get(self.bytes_field)) != parts.size_bytes:
            told = f"it has {parts.size_bytes} bytes where its manifest has {expected}; {again}"
            yield Problem(FindingKind.TRUNCATED, told)
        elif parts.sha256(Span(0, parts.size_bytes)) != manifest.get(self.digest_field):
            yield Problem(FindingKind.CORRUPT, f"its SHA-256 is not that of its manifest; {again}")

    def payload(self, item: Files) -> bytes:
        name = self._named(item, self.entry_file)
        if not name:
            raise FormatError(f"{item.path} has no {self.entry_file}")
        return item.read(name, LARGEST_BYTES)

    def _named(self, item: Files, ending: str) -> str:
        return next((name for name in item.names if name.endswith(ending)), "")

    def _manifest(self, item: Files) -> Mapping[str, Any] | None:
        try:
            found = json.loads(item.read(self._named(item, ".json"), _MANIFEST_BYTES))
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


class B12x(_Manifested, of="b12x"):
    """The kernels of CuTe DSL that B12X compiled.

    Source: b12x 1.5 (PyPI), ``b12x/_lib/compiler.py`` and ``b12x/_lib/cache_integrity.py``; no file written
    on a GPU was available. A key is a SHA-256 of sources, types, options and versions: ``<64 hex>.o``,
    ``.json`` and ``.lock``, which flock(2) holds, in a directory of its first two digits. Nothing is ever
    removed.
    """

    layout = Layout([rf"[0-9a-f]{{2}}/([0-9a-f]{{64}})\.{ending}" for ending in ("o", "json", "lock")])
    bytes_field, digest_field, entry_file, holds_kind = (
        "object_bytes",
        "object_sha256",
        ".o",
        PayloadKind.ELF.value,
    )
    folders_removed = 1


class Unsloth(_Manifested, of="unsloth"):
    """The bundles of ``torch.compiler.save_cache_artifacts`` that Unsloth keeps for each environment and
    model.

    Source: unsloth_zoo 2026.10 (PyPI), ``unsloth_zoo/compile_cache.py``; no file written on a GPU was
    available. ``<32 hex>/`` has ``manifest.json`` and the bundle that it names, with the artifacts of
    Inductor, AOTAutograd and Triton, whose pickles PyTorch loads. Files are written under a temporary name
    and renamed.
    """

    layout = Layout(
        [rf"([0-9a-f]{{32}})/{name}" for name in (r"manifest\.json", r"megacache(?:-[0-9a-f]{16})?\.bin")],
        left=[Left(r"[0-9a-f]{32}/(?:manifest\.json|megacache(?:-[0-9a-f]{16})?\.bin)\.tmp\.(?P<pid>\d+)")],
    )
    bytes_field, digest_field, entry_file, holds_kind = "bytes", "sha256", ".bin", "mega-cache"
    folders_removed = 1

    def check(self, item: Files) -> Iterator[Problem]:
        """Check that the bundle is as in its manifest, and check its pickles."""
        known = list(super().check(item))
        yield from known
        data = b"" if known else self.payload(item)
        if mega_cache.begins(data) and (problem := mega_cache.artifacts(data)[1]):
            yield problem
