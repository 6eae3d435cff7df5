"""Requests that missed and were built without the cache, kept until ``warm --misses`` builds them.

Each is a file ``<64 hex of the key>.json`` with everything that a build needs, including the source. Losing
one costs a warm start, never a program. Must not know how programs are compiled.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpucache.errors import TargetError
from gpucache.model import ArtifactKind, BuildRequest, CacheKey, Checks, Language, Program, Target
from gpucache.store import layout
from gpucache.store.bounded_folder import BoundedFolder, Bounds
from gpucache.store.interface import MissedRequest
from gpucache.store.root_folder import RootFolder

if TYPE_CHECKING:
    from gpucache.answers.lookup import Noted

FILE_CAP = 256
"""The maximum number of kept requests: the newest."""
REQUEST_BYTES_CAP = 8 << 20
"""A request that is larger, including its source, is not kept."""
BYTES_CAP = 64 << 20
AGAIN_NS = 3600 * 10**9
"""A request repeated after this time counts as new: the process that was to build it may have stopped."""


class Missed:
    """The missed requests below one root."""

    def __init__(self, root: RootFolder) -> None:
        self._folder = BoundedFolder(
            root, layout.MISSED, ".json", Bounds(FILE_CAP, REQUEST_BYTES_CAP, BYTES_CAP)
        )

    def note(self, missed: MissedRequest) -> "Noted":
        """Keep a request, with the local sizes that were kept with it before."""
        from gpucache.answers.lookup import Noted

        data = self._folder.get(missed.key.hex)
        before = _decode(missed.key.hex, data) if data is not None else None
        known = before.request.local_sizes if before is not None else ()
        sizes = dict.fromkeys((*known, *missed.request.local_sizes))
        recent = before is not None and abs(missed.when_ns - before.when_ns) < AGAIN_NS
        known_as_rejected = before is not None and before.rejected
        if recent and len(sizes) == len(known) and missed.rejected <= known_as_rejected:
            return Noted.KNOWN
        return Noted.NEW if self._folder.put(missed.key.hex, _encode(missed, tuple(sizes))) else Noted.LOST

    def all(self) -> list[MissedRequest]:
        found = (_decode(name, data) for name, data in self._folder.all())
        return sorted((one for one in found if one is not None), key=lambda one: one.when_ns)

    def count(self) -> int:
        return len(self._folder.names())

    def forget(self, key: CacheKey) -> None:
        self._folder.remove(key.hex)


def _encode(missed: MissedRequest, local_sizes: tuple[tuple[int, ...], ...]) -> bytes:
    request = missed.request
    values = {
        "when_ns": missed.when_ns,
        "command": missed.command,
        "environment": missed.environment,
        "rejected": missed.rejected,
        "program": request.program.name,
        "language": request.program.language.value,
        "source": request.program.source.decode("utf-8", "surrogateescape"),
        "target": str(request.target),
        "artifact_kind": request.artifact_kind.value,
        "options": request.options,
        "include_dirs": request.include_dirs,
        "name_expressions": request.name_expressions,
        "local_sizes": local_sizes,
        "headers": request.headers,
        "cwd": request.cwd,
        "checks": request.checks.value,
        "question": missed.question,
    }
    return json.dumps(values, separators=(",", ":")).encode("ascii")


def _decode(name: str, data: bytes) -> MissedRequest | None:
    """Parse the file of a request; None if it cannot be read."""
    try:
        return _request(CacheKey(name), json.loads(data))
    except (ValueError, KeyError, TypeError, RecursionError, TargetError):
        return None


def _request(key: CacheKey, values: Mapping[str, object]) -> MissedRequest:
    """Parse a request; raises ValueError, KeyError, TypeError or TargetError unless ``_encode`` wrote it."""
    sizes = values["local_sizes"]
    if not isinstance(sizes, list) or not all(isinstance(one, int) for size in sizes for one in size):
        raise TypeError("local sizes are lists of numbers")
    when_ns = values["when_ns"]
    if not isinstance(when_ns, int):
        raise TypeError("an instant is a number")
    source = _text(values["source"]).encode("utf-8", "surrogateescape")
    request = BuildRequest(
        program=Program(_text(values["program"]), Language(_text(values["language"])), source),
        target=Target.parse(_text(values["target"])),
        artifact_kind=ArtifactKind(_text(values["artifact_kind"])),
        local_sizes=tuple(tuple(size) for size in sizes),
        cwd=_text(values["cwd"]),
        options=_texts(values["options"]),
        include_dirs=_texts(values["include_dirs"]),
        name_expressions=_texts(values["name_expressions"]),
        headers=_texts(values["headers"]),
        checks=Checks(_text(values.get("checks", Checks.NONE.value))),
    )
    pairs = values["environment"]
    if not isinstance(pairs, list):
        raise TypeError("variables are a list")
    environment = tuple((_text(name), _text(value)) for name, value in pairs)
    rejected = values.get("rejected") is True
    question = _texts(values.get("question", []))  # which older gpucaches do not note
    return MissedRequest(key, when_ns, _text(values["command"]), request, environment, rejected, question)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("a list was expected")
    return tuple(map(_text, value))
