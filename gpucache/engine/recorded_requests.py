"""The parts of a request in a recording: its inputs, wherever they are, and how its headers were found; and
the recorded builds as people see them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from gpucache.answers.record import Launch, RecordedProgram
from gpucache.backends.interface import Compilation
from gpucache.engine.prepare import Prepared, closure_of
from gpucache.keys import Closure, digest
from gpucache.model import ArtifactKind, BuildRequest, Language
from gpucache.recording.builds import Call, Pairs, RecordedBuild, Seen
from gpucache.recording.kernels import recorded_kernels
from gpucache.recording.reading import RecordingFolder
from gpucache.recording.writing import Tree, read_headers


@dataclass(frozen=True, slots=True)
class Observed:
    """A build to be recorded, and the bytes of its files by their SHA-256."""

    build: RecordedBuild
    contents: Mapping[str, bytes]
    places: Seen


def observe(prepared: Prepared, environment: Pairs) -> Observed:
    """The record of a request; ``environment`` are the variables that reach its compiler.

    Headers that a compiler with other rules of searching could find are kept too, as the recording may be
    built for a device of another kind. Raises OSError.
    """
    request, compilation, closure = prepared.request, prepared.compilation, prepared.closure
    anywhere = compilation._replace(rule=compilation.rule._replace(every=True))
    wide = closure_of(request, anywhere)
    files = tuple(dict.fromkeys((*closure.files, *wide.files)))
    folders = (*compilation.include_dirs, *compilation.inherited_dirs, *compilation.rule.system)
    if files:
        unnamed = _unnamed(request, compilation, closure)
        folders = (*unnamed, *folders, *_unnamed(request, anywhere, wide))
    folders = tuple(filter(os.path.isabs, dict.fromkeys(folders)))
    tree = Tree(folders, files, (include.name for include in (*closure.includes, *wide.includes)))
    headers, contents = read_headers(tree, files)
    source = request.program.source
    if request.program.language is not Language.SPIR_V:
        source = source.replace(b"\r\n", b"\n")
    toolchain, asked = compilation.inputs.toolchain, request.asked
    memory = asked.headers if asked is not None else ()
    build = RecordedBuild(
        program=request.program.name,
        language=Language(request.program.language),
        source=digest(source),
        options=compilation.options,
        folders=tree.folders,
        headers=headers,
        includes=closure.includes,
        resolution=closure.resolution,
        target=str(request.target),
        implementation=toolchain.implementation,
        toolchain=toolchain.fields,
        identity=toolchain.identity,
        environment=environment,
        name_expressions=request.name_expressions,
        artifact_kind=ArtifactKind(request.artifact_kind),
        file_name=asked.file_name if asked is not None else "",
        made_up=asked is not None and asked.made_up,
        memory_headers=tuple((name, digest(text)) for name, text in memory),
    )
    contents |= {digest(text): text for _, text in memory} | {build.source: source}
    places = Seen(roots=frozenset({tree.roots} if tree.roots else ()))
    if asked is not None:
        places = Seen(calls=frozenset({Call(tree.roots, request.cwd, compilation.inputs.locations)}))
    return Observed(build, contents, places)


def recorded_programs(found: RecordingFolder) -> list[RecordedProgram]:
    """The builds and kernels of a recording as they are shown."""
    return recorded_kernels(found.kernels) + [
        RecordedProgram(
            recorded=build.digest,
            program=build.program,
            language=build.language.value,
            target=build.target,
            device=build.toolchain,
            options=build.options,
            name_expressions=build.name_expressions,
            source=build.source,
            headers=len(build.headers) + len(build.memory_headers),
            kept=found.has_sources(build),
            local_sizes=tuple(Launch(*one) for one in sorted(seen.local_sizes)),
            artifact_kind=build.artifact_kind,
            compile_ns=seen.compile_ns,
            failed=seen.failed,
            first_ns=seen.first[0] if seen.first else None,
            command=seen.first[1] if seen.first else "",
        )
        for build, seen in found.recording.rows()
    ]


def _unnamed(request: BuildRequest, compilation: Compilation, closure: Closure) -> tuple[str, ...]:
    """Directories that no option names and that are searched first, so that a closure may depend on them."""
    rule, found = compilation.rule, []
    if rule.home is not None:
        homeless = compilation._replace(rule=rule._replace(home=None))
        found += [rule.home] if closure_of(request, homeless) != closure else []
    if request.searches_cwd:
        elsewhere = request._replace(searches_cwd=False)
        found += [request.cwd] if closure_of(elsewhere, compilation) != closure else []
    return tuple(found)
