"""A call of ``compile_program`` as a question that a row of a root answers.

All that a program loads of us as long as rows answer. Loads cuda.bindings, cuda.core and NVRTC, whose version
is part of the question.
"""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from cuda.core import Device, ObjectCode

from gpucache.host.environment import environment_since
from gpucache.library import rows

MAKERS: Mapping[str, Any] = {
    "cubin": ObjectCode.from_cubin,
    "ptx": ObjectCode.from_ptx,
    "ltoir": ObjectCode.from_ltoir,
}
"""By kind of artifact."""
NAME = b"gpucache.cuda"
"""The name of every source in our questions; a program that calls NVRTC itself has other options."""
_LOADED = "@loaded"
"""As ``backends.options`` has it."""
_OWN_HEADERS = b"gpucache/check.h"


class Asked(NamedTuple):
    """A call that was looked up in the rows."""

    question: tuple[bytes, ...] = ()
    """Its fields, as ``serve.nvrtc`` reads them; none if rows do not answer such a call."""
    code: ObjectCode | None = None


def ask(
    source: Any,
    target: Any,
    options: Any,
    name: Any,
    name_expressions: Any,
    include_path: Any,
    artifact_kind: Any,
    headers: Any,
    checks: Any,
) -> Asked:
    """Look a call up by its arguments, whatever they are. Raises nothing."""
    if headers or checks != "none" or not (name is None or type(name) is str) or rows.library() is None:
        return Asked()
    try:
        question = _question(source, target, options, name_expressions, include_path, artifact_kind)
        row = rows.answer(rows.COMPILE, question) if question else None
        if row is None or len(row.fields) < 4:
            return Asked(question)
        _, payload, title, kind, *names = row.fields
        pairs = zip(names[::2], names[1::2], strict=True)
        lowered = {expression.decode(): symbol.decode() for expression, symbol in pairs}
        code = object_code(kind.decode(), name or os.fsdecode(title), payload, lowered)
    except Exception:  # an argument that is refused, or no NVRTC: the other way reports it
        return Asked()
    rows.tell(row)
    return Asked(question, code)


def _question(
    source: Any, target: Any, options: Any, name_expressions: Any, include_path: Any, artifact_kind: Any
) -> tuple[bytes, ...]:
    text = source.encode() if isinstance(source, str) else source
    lists = name_expressions, include_path, *(() if isinstance(options, str) else (options,))
    if _OWN_HEADERS in text or b"{" not in text or not all(isinstance(one, list | tuple) for one in lists):
        return ()  # an iterator can be read once only, and a text without a brace may be a path
    wanted = f"sm_{Device().arch}" if target is None else target.removeprefix("cuda:")
    given = [options] if isinstance(options, str) else list(options)
    spelled = [wanted, artifact_kind or "", (type(options) is str and "text") or "list", *given]
    spelled += ["-I", *map(os.fspath, include_path)]
    expressions = tuple(name_expressions)
    version, file = _nvrtc()
    return (
        b"",
        os.getcwdb(),  # noqa: PTH109 - text, for C
        rows.variables(environment_since(_LOADED)),
        version,
        file,
        NAME,
        text,
        b"0",
        b"%d" % len(spelled),
        *map(os.fsencode, spelled),
        b"%d" % len(expressions),
        *map(os.fsencode, expressions),
    )


@cache
def _nvrtc() -> tuple[bytes, bytes]:
    """The version of NVRTC and its file; raises RuntimeError, or ImportError without the bindings."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    library = rows.library()
    # Below ``gpucache run`` our library has NVRTC's name, and needs it by the first.
    names = (b"gpucache-nvrtc.so.%d" % major, b"libnvrtc.so.%d" % major)
    file = next(filter(None, map(library.file_of, names)), b"") if library is not None else b""
    if not file:
        raise RuntimeError("its file is not known")
    return b"%d.%d" % (major, minor), file


def object_code(kind: str, name: str, payload: bytes, names: Mapping[str, str]) -> ObjectCode:
    """An ``ObjectCode`` as ``cuda.core.Program.compile`` makes one, with lowered names as bytes."""
    lowered = {expression: symbol.encode() for expression, symbol in names.items()}
    return MAKERS[kind](payload, name=name, symbol_mapping=lowered)
