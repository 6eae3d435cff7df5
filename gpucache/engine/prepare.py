"""From a request to its keys: the plan of the build, the include closure, key fields, two keys.

Reads headers, nothing else. Must not know stores.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpucache.backends.interface import Backend, Compilation
from gpucache.keys import cache_key, key_fields, located_fields
from gpucache.model import BuildRequest, CacheKey, Closure, KeyField, Toolchain
from gpucache.sources import read_closure

_CLOCK_MACRO = re.compile(r"\b__(DATE|TIME|TIMESTAMP)__\b")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with everything a lookup needs."""

    request: BuildRequest
    compilation: Compilation
    closure: Closure
    fields: tuple[KeyField, ...]
    key: CacheKey
    """Portable: the same wherever the sources lie."""
    located: tuple[KeyField, ...]
    located_key: CacheKey
    """For an artifact that holds paths."""

    @property
    def refusal(self) -> str | None:
        """Why no entry may be kept under these keys; None where one may."""
        for option in self.compilation.inputs.options:
            if _CLOCK_MACRO.search(option):
                return (
                    f"the build option {option!r} puts the time of the build into the artifact; leave it out"
                )
        return self.closure.uncacheable


def prepare(
    backend: Backend, request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]
) -> Prepared:
    """Everything a lookup needs; raises OptionError for options that must be refused."""
    compilation = backend.plan(request, toolchain, environ)
    closure = closure_of(request, compilation)
    fields = key_fields(request, closure, compilation.inputs)
    located = located_fields(fields, compilation.inputs)
    return Prepared(request, compilation, closure, fields, cache_key(fields), located, cache_key(located))


def closure_of(request: BuildRequest, compilation: Compilation) -> Closure:
    """The include closure as it is on disk now."""
    return read_closure(
        request.program.source,
        rule=compilation.rule,
        include_dirs=compilation.include_dirs,
        cwd=request.cwd if request.searches_cwd else None,
        forced=compilation.forced_includes,
        named_headers=request.headers,
    )


def holds_paths(prepared: Prepared, payload: bytes) -> bool:
    """Whether an artifact may only be reused from the same directories."""
    return prepared.compilation.holds_paths or any(
        place.encode(errors="surrogateescape") in payload for place in prepared.compilation.include_dirs
    )
