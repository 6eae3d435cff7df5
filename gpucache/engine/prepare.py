"""From a request to its keys: the plan of the build, the include closure, the key fields, and two keys.

A process keeps its latest preparations, as programs repeat their requests. A result follows from the request,
the toolchain, the environment and the answers of the disk alone, so exactly these are compared before it is
used again. Reads headers, and the source of an entry that is requested anew. Must not know stores.

Owns the names of programs: of one without a name, and those under which builds are recorded.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpucache.backends.interface import Backend, Compilation
from gpucache.errors import GpucacheError
from gpucache.keys import (
    FOLDER,
    REPLACED,
    SEARCHED,
    Closure,
    Include,
    cache_key,
    digest,
    key_fields,
    located_fields,
    program_digest,
    source_digest,
)
from gpucache.model import (
    ArtifactKind,
    BuildRequest,
    CacheKey,
    Checks,
    EntryHead,
    KeyField,
    Language,
    Program,
    Target,
    Toolchain,
)
from gpucache.payload.source import kernel_names
from gpucache.sources import Memos, Wanted, read_closure, still_closure

if TYPE_CHECKING:
    from gpucache.answers.entries import EntryReport

UNNAMED = "unnamed"
ALIAS = "alias of "
"""The beginning of the name of a history that only refers to another one."""
_DIGITS = 16
_SPIRV_BEGINS = (b"\x03", b"\x07")
"""The first byte of a module, by its byte order, which no text begins with."""
_KEPT_BYTES = 64 << 10
"""Programs build or look up the same source repeatedly, so the names of small ones are kept."""


def program_name(source: bytes) -> str:
    """The name of the first kernel in a source, or ``unnamed``; for people, never part of a key."""
    return (_first_kernel if len(source) > _KEPT_BYTES else _kept_first_kernel)(source)


def _first_kernel(source: bytes) -> str:
    if source[:1] in _SPIRV_BEGINS:
        from gpucache.payload import spirv

        return next(iter(spirv.kernel_names(source)), UNNAMED)
    return next(kernel_names(source), UNNAMED)


_kept_first_kernel = lru_cache(maxsize=64)(_first_kernel)


def named(program: Program) -> Program:
    """A program with a name: its first kernel's if it has none."""
    return program if program.name else program._replace(name=program_name(program.source))


def source_mark(source: bytes) -> str:
    """The first digits of a source's SHA-256, enough to distinguish the versions of a program."""
    return source_digest(source)[:_DIGITS]


class Identity(NamedTuple):
    """The facts that identify a program even if it has another name."""

    name: str
    kernel: str
    """Its first kernel, or ``unnamed``; also the name of a program that a library compiles without a name."""
    mark: str

    @classmethod
    def of(cls, program: Program) -> "Identity":
        return cls(program.name, program_name(program.source), source_mark(program.source))

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which it has histories: ``kernels/nbody.cl``, ``nbody.cl`` and the first kernel."""
        kernel = () if self.kernel == UNNAMED else (self.kernel,)
        return tuple(dict.fromkeys((self.name, _base(self.name), *kernel)))

    @property
    def aliases(self) -> dict[str, str]:
        """The histories that lead to builds under other names, each with the name that needs no alias.

        The first kernel's name survives edits of a source; a source without a kernel is known by its digest.
        """
        base = _base(self.name)
        if self.kernel == UNNAMED:
            return {f"{ALIAS}file {base}": base, f"{ALIAS}source {self.mark}": ""}
        return {f"{ALIAS}file {base}": base, f"{ALIAS}kernel {self.kernel}": self.kernel}

    def is_kin(self, name: str, mark: str) -> bool:
        """Whether something built under a name, from a source of this mark, is a version of this program."""
        nameless = self.kernel != UNNAMED and self.kernel in (name, self.name)
        return mark == self.mark or _base(name) == _base(self.name) or nameless


def _base(name: str) -> str:
    return name.rpartition("/")[2] or name


_PROGRAMS_KEPT = 64
_SOURCE_BYTES_KEPT = 256 << 10
_QUESTIONS_KEPT = 64
"""The most questions of a request that is kept: with more, a memo of the store is about as fast."""
_CLOCK_MACROS = ("__DATE__", "__TIME__", "__TIMESTAMP__")
_CLOCK_MACRO = r"\b__(DATE|TIME|TIMESTAMP)__\b"


class _Prepared(NamedTuple):
    request: BuildRequest
    compilation: Compilation
    closure: Closure
    fields: tuple[KeyField, ...]
    key: CacheKey
    """The portable key: the same wherever the sources are."""


class Prepared(_Prepared):
    """A request with everything a lookup needs."""

    @cached_property
    def located(self) -> tuple[KeyField, ...]:
        used = _used(self.request, self.compilation, self.closure)
        return located_fields(self.fields, self.compilation.inputs._replace(locations=used))

    @cached_property
    def located_key(self) -> CacheKey:
        return cache_key(self.located)

    @property
    def is_bound(self) -> bool:
        """Whether the located key has directories of this machine, and not only the program's own names."""
        return any(item.label in (SEARCHED, FOLDER) for item in self.located)

    def keys(self) -> Iterator[CacheKey]:
        """Both keys in the order of the lookup; the second is computed only if the first one misses."""
        yield self.key
        yield self.located_key

    @property
    def refusal(self) -> str | None:
        """Why no entry may be kept under these keys; None if one may."""
        for option in self.compilation.inputs.options:
            if any(name in option for name in _CLOCK_MACROS) and re.search(_CLOCK_MACRO, option):
                return (
                    f"the build option {option!r} puts the time of the build into the artifact; leave it out"
                )
        for _, value in self.compilation.inputs.toolchain.fields:
            if value.startswith(REPLACED):
                return f"{value}, of its compiler; start the program again"
        return self.compilation.refusal or self.closure.uncacheable

    def lacking_sizes(self, head: EntryHead) -> tuple[tuple[int, ...], ...]:
        """The local sizes of the request that an entry is not compiled for."""
        return tuple(size for size in self.compilation.inputs.local_sizes if size not in head.local_sizes)


class Known(NamedTuple):
    """Facts on a program from a recording on another machine."""

    source: str
    closure: Closure


def prepare(
    backend: Backend,
    request: BuildRequest,
    toolchain: Toolchain,
    environ: Mapping[str, str],
    memos: Memos | None = None,
    known: Known | None = None,
    *,
    light: bool = False,
) -> Prepared:
    """Everything a lookup needs; raises OptionError for options that must be refused.

    ``memos`` keep the findings in headers from one process to the next. ``known`` replaces source and headers
    that are not on this machine. With ``light`` the closure may lack its stamps, see ``stamped``.
    """
    compilation = backend.plan(request, toolchain, environ)
    closure = closure_of(request, compilation, memos, light=light) if known is None else known.closure
    if request.asked is not None and compilation.lists_files and (closure.renames or known is not None):
        inputs = compilation.inputs._replace(folder=request.cwd)
        compilation = compilation._replace(inputs=inputs)  # NVRTC makes a full path of a relative name
    fields = key_fields(request, closure, compilation.inputs, None if known is None else known.source)
    return Prepared(request, compilation, closure, fields, cache_key(fields))


_kept: "dict[tuple[BuildRequest, Toolchain], tuple[Mapping[str, str], Prepared]]" = {}


def prepare_again(
    backend: Backend,
    request: BuildRequest,
    toolchain: Toolchain,
    environ: Mapping[str, str],
    memos: Memos | None = None,
) -> Prepared:
    """The result of ``prepare``; raises OptionError as it does.

    The result of an equal request is used again if every question to the disk, contents of headers included,
    still has the same answer. ``environ`` must not change later.
    """
    asking = request, toolchain
    before = _kept.get(asking)
    if before is not None and (before[0] is environ or before[0] == environ):
        prepared = before[1]
        closure = still_closure(prepared.closure)
        if closure is not None:
            return prepared if closure is prepared.closure else prepared._replace(closure=closure)
    prepared = prepare(backend, request, toolchain, environ, memos, light=True)
    asked, few = prepared.closure.asked, len(prepared.closure.files) <= _QUESTIONS_KEPT
    small = few and len(request.program.source) <= _SOURCE_BYTES_KEPT
    if asked is not None and small and len(asked) <= _QUESTIONS_KEPT:
        if len(_kept) >= _PROGRAMS_KEPT:
            _kept.clear()  # another thread may do so between any two lines of this function
        _kept[asking] = environ, prepared
    return prepared


def stamped(prepared: Prepared, memos: Memos | None) -> Prepared:
    """A request with the stamps of all examined files, taken before the compiler reads any of them."""
    if prepared.closure.stamps is not None:
        return prepared
    now = closure_of(prepared.request, prepared.compilation, memos)
    return prepared._replace(closure=prepared.closure._replace(stamps=now.stamps))


def of_kind(prepared: Prepared, kind: ArtifactKind) -> Prepared:
    """A request for another kind of artifact that the same compile produces."""
    request = prepared.request._replace(artifact_kind=kind)
    fields = key_fields(request, prepared.closure, prepared.compilation.inputs)
    return prepared._replace(request=request, fields=fields, key=cache_key(fields))


def _used(request: BuildRequest, compilation: Compilation, closure: Closure) -> tuple[str, ...]:
    """The include directories with headers of the closure: no other can be in an artifact.

    A header outside of them all, as ``../config.h`` may be, can have been found through any of them.
    """
    places = {place: _below(place, request.cwd) for place in compilation.inputs.locations}
    strays = [file for file in closure.files if not file.startswith((*places.values(),))]
    if strays and request.searches_cwd:
        here = os.path.realpath(request.cwd)
        places[here] = _below(here)
    lost = not all(file.startswith((*places.values(),)) for file in strays)
    return tuple(
        place
        for place, below in places.items()
        if lost or ".." in place or any(file.startswith(below) for file in closure.files)
    )


def spelled_headers(prepared: Prepared) -> Iterator[tuple[str, str, str]]:
    """The headers below include directories: the directory as it is spelled, as absolute, and the rest."""
    request, compilation = prepared.request, prepared.compilation
    words = [word.removeprefix("-I").strip('"') for word in request.options]
    own = {_below(word, request.cwd): word for word in words if word}
    always: set[str] = set()  # searched anyway: compilers write such headers as if they were not named
    if request.searches_cwd and compilation.rule.searches_cwd:
        always = {_below(name, request.cwd) for name in (".", *compilation.rule.system)}
    for place in dict.fromkeys((*compilation.include_dirs, *compilation.inherited_dirs)):
        below = _below(place, request.cwd)
        for file in prepared.closure.files if below not in always else ():
            if file.startswith(below):
                spelled = own.get(below, place)
                yield os.path.join(spelled, ""), os.path.join(place, ""), file.removeprefix(below)  # noqa: PTH118


def _below(place: str, cwd: str = "/") -> str:
    return os.path.normpath(os.path.join(cwd, place)).rstrip("/") + "/"  # noqa: PTH118


def closure_of(
    request: BuildRequest, compilation: Compilation, memos: Memos | None = None, *, light: bool = False
) -> Closure:
    """The include closure as it is on disk now, including headers in memory."""
    options = (*compilation.inputs.options, *compilation.inherited_options)
    headers = request.asked.headers if request.asked is not None else ()
    is_text = request.program.language is not Language.SPIR_V
    wanted = Wanted(
        request.program.source if is_text else b"",
        compilation.rule,
        include_dirs=(*compilation.include_dirs, *compilation.inherited_dirs),
        cwd=request.cwd if request.searches_cwd else None,
        forced=compilation.forced_includes,
        definitions=[option[2:] for option in options if option.startswith("-D")],
        named_headers=request.headers,
        name_them=request.name_headers,
        # The includes of each are looked for next to its name first.
        held=[(os.path.dirname(os.path.join(request.cwd, name)), text) for name, text in headers],  # noqa: PTH118, PTH120 - text in, text out
    )
    closure = read_closure(wanted, memos=memos, light=light)
    memory = (Include(name, f"{digest(text)} in memory") for name, text in headers)
    return closure._replace(includes=(*memory, *closure.includes)) if headers else closure


def lacks_kernels(prepared: Prepared, payload: bytes) -> bool:
    """Whether an artifact has no kernel to launch, and is not meant to be linked either."""
    from gpucache.payload import describe, holds_no_kernel  # which no hit needs

    return not prepared.compilation.linked_later and holds_no_kernel(describe(payload))


def holds_paths(prepared: Prepared, payload: bytes, said: Sequence[str] = ()) -> bool:
    """Whether an artifact may be reused only from the same directories, and for a source of the same name.

    ``said`` are other texts that a program may see: the kept log, and the lowered names.
    """
    compilation, request, files = prepared.compilation, prepared.request, prepared.closure.files
    if compilation.holds_paths or prepared.closure.tells_places:
        return True
    if prepared.closure.tells_name and (compilation.source_path or compilation.rule.makes_up_folders):
        return True
    searched = [item.value for item in prepared.located if item.label in (SEARCHED, FOLDER)]
    paths = dict.fromkeys((*compilation.include_dirs, *compilation.inherited_dirs, *searched))
    places = [os.fsencode(place) for path in paths for place in _spelled(path, request.cwd, files)]
    kind = request.artifact_kind
    if kind is ArtifactKind.LTOIR:  # it contains paths of headers that declare functions, in an encoding
        return any(include.digest is not None for include in prepared.closure.includes)
    told = payload
    if request.asked is not None:
        searched_below = tuple(map(_below, compilation.include_dirs))
        beside = [file for file in files if not file.startswith(searched_below)]
        home = os.path.dirname(request.asked.file_name)  # noqa: PTH120 - as the program spells it
        names = [*_spelled(home, request.cwd, beside), compilation.source_path]
        places += [os.fsencode(name) for name in names if name]
    if request.asked is not None or kind is ArtifactKind.OPENCL_BINARY:
        told += b"\0".join(text.encode(errors="surrogateescape") for text in said)
    if compilation.lists_files:
        places += [os.fsencode(os.path.basename(file)) for file in files]  # noqa: PTH119
    if kind is ArtifactKind.PTX:  # it writes strings as numbers: {47, 116, 109, 112}
        places += [", ".join(map(str, place)).encode() for place in places]
    return any(place in told for place in places)


def _spelled(path: str, cwd: str, files: Sequence[str]) -> Iterator[str]:
    """How the paths of headers begin that were found through a directory.

    A relative one may be as short as ``.``, so the text after it distinguishes it from other bytes.
    """
    if os.path.isabs(path) and path != "/":  # noqa: PTH117
        yield path
        return
    below = _below(path, cwd)
    for file in files:
        if file.startswith(below):
            yield os.path.join(path, file.removeprefix(below).partition("/")[0])  # noqa: PTH118


def request_of(report: "EntryReport", target: Target, *, changed: bool = False) -> BuildRequest:
    """The request an entry was built from, with its source file as it is now.

    Raises GpucacheError if the file is gone, or has changed and ``changed`` does not allow it.
    """
    return BuildRequest(
        program=_program(report, changed=changed),
        target=target,
        options=tuple(value for label, value in report.provenance if label == "build option"),
        include_dirs=tuple(value for label, value in report.provenance if label == "include directory"),
        artifact_kind=ArtifactKind(report.entry.artifact_kind),
        name_expressions=tuple(value for label, value in _fields(report) if label == "name expression"),
        local_sizes=report.local_sizes,
        headers=tuple(value for label, value in report.provenance if label == "named header"),
        checks=Checks(dict(_fields(report)).get("checks", Checks.NONE)),
    )


def _program(report: "EntryReport", *, changed: bool) -> Program:
    from pathlib import Path

    from gpucache.sources.disk import load_program  # which no hit needs

    path = dict(report.provenance).get("source file")
    if path is None:
        raise GpucacheError("it was built from memory, so no file can be compiled again")
    fields = dict(_fields(report))
    program = load_program(Path(path), report.entry.program, Language(fields["language"]))
    if not changed and program_digest(program) != fields.get("source"):
        raise GpucacheError(f"{path} has changed since")
    return program


def _fields(report: "EntryReport") -> list[tuple[str, str]]:
    return [(field.label, field.value) for field in report.key_fields]
