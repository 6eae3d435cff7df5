"""What a recording keeps of a request: its inputs, wherever they lie, and how its headers were found."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpucache.engine.prepare import Prepared, closure_of
from gpucache.keys import digest
from gpucache.recording.builds import Pairs, RecordedBuild
from gpucache.recording.trees import Tree, read_headers


@dataclass(frozen=True, slots=True)
class Observed:
    """A build to be recorded, and the bytes that it was made of by their SHA-256."""

    build: RecordedBuild
    contents: Mapping[str, bytes]


def observe(prepared: Prepared, environment: Pairs) -> Observed:
    """What is recorded of a request; ``environment`` are the variables that reach its compiler.

    Headers that a compiler with other rules of searching could find are kept too, as the recording may be
    built for a device of another kind. Raises OSError.
    """
    request, compilation, closure = prepared.request, prepared.compilation, prepared.closure
    anywhere = replace(compilation, rule=replace(compilation.rule, every=True))
    wide = closure_of(request, anywhere)
    files = tuple(dict.fromkeys((*closure.files, *wide.files)))
    folders = (*compilation.include_dirs, *compilation.inherited_dirs, *compilation.rule.system)
    if request.searches_cwd and files:
        elsewhere = replace(request, searches_cwd=False)
        if closure_of(elsewhere, compilation) != closure:
            folders = (request.cwd, *folders)
        elif closure_of(elsewhere, anywhere) != wide:
            folders = (*folders, request.cwd)
    folders = tuple(filter(os.path.isabs, folders))
    tree = Tree(folders, files, (include.name for include in (*closure.includes, *wide.includes)))
    headers, contents = read_headers(tree, files)
    source = request.program.source.replace(b"\r\n", b"\n")
    toolchain = compilation.inputs.toolchain
    build = RecordedBuild(
        program=request.program.name,
        language=request.program.language,
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
    )
    return Observed(build, {**contents, build.source: source})
