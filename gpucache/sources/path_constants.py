"""Whether a text may make a constant of the path of a file. Pure.

``sizeof(__FILE__)``, or a hash of it at compile time, makes generated code depend on the path of a header,
and the artifact does not show it. So a mention of the path counts, with one exception: it is passed on whole,
as an argument or as part of a literal, to a function that can only print it (``printf``, the function of
``assert``, CUB's ``Debug``) or to the assembler. Then the path is in the artifact, where it is found, or
nowhere. A mention in the message of a pragma does not count. A header that opens one of CCCL's own
namespaces with CCCL's own macro is part of CCCL: it offers ``source_location``, and does not use it.

``__FILE_NAME__`` is the last part of the path, which does not depend on the header's directory;
``__BASE_FILE__`` is the path of the main source. Clang's ``__PRETTY_FUNCTION__`` names a lambda, or a type
without a name, after its file.
"""

import re
from enum import IntFlag

_LIKELY = (b"FILE", b"source_location", b"PRETTY_FUNCTION")
_CCCL = re.compile(rb"^_(?:CCCL|LIBCUDACXX)_BEGIN_NAMESPACE_\w+", re.MULTILINE)
_INCLUDE = re.compile(rb"[ \t]*(?:#|%:)[ \t]*(?:include|import|embed|pragma)\b[^\n]*")
_DEFINE = re.compile(rb"[ \t]*(?:#|%:)[ \t]*define\b[ \t]*(\w*)")
_STRING = rb'"(?:[^"\\\n]|\\.)*"'
# Bounded, as a text may be one long word or one long blank. No function in these lists has a longer name.
_TOKEN = re.compile(
    _STRING + rb"|(?P<name>(?<![\w:])(?:(?:__)?asm(?:__)?\s{1,20})?[\w:]{1,80}|)\s{0,20}(?P<open>\()|\)"
)
_PRINTS = re.compile(
    rb"(?:::|std::)?f?printf|__assert(?:fail|_fail|_rtn|2)|(?:cub|CUB_NS_QUALIFIER)::Debug|(?:__)?asm(?:__)?\s+\w+"
    rb"|(?:__)?asm(?:__)?"
)
_REDEFINED = re.compile(rb"^(?:f?printf|__assert\w*|(?:__)?asm(?:__)?)\b", re.MULTILINE)
# A definition of a function or an object. A call in the body of a macro has a literal, so it does not match;
# neither does ``using ::printf``, which defines nothing new.
_DEFINED = re.compile(
    rb"(?<![\w.>:])(?:f?printf|__assert(?:fail|_fail|_rtn|2))\s*(?:[={;]|\([^;{}\"#]{0,1000}\)[^;{}()\"#]{0,200}\{)"
)
_ASSERT = re.compile(rb"(?<!\w)assert(?!\w)")
_BEFORE = re.compile(rb"[(,\"]\s*\Z")
_AFTER = re.compile(rb"\s*(?:" + _STRING + rb"\s*)*[,)]")
_FARTHEST = 4096
_LONGEST = 256  # characters after a mention in its literal


class PathConstants(IntFlag):
    """The paths of which a text may make constants."""

    NOTHING = 0
    HERE = 1
    """The path of the file in which it is written, such as by ``__FILE__``."""
    CALLER = 2
    """The path of a text that calls one of its functions, through a default argument."""
    MAIN = 4
    LAST = 8
    """The last part of its own path, or of the path of a text that uses its macros."""
    TYPES = 16
    """With clang, the paths of texts that define its types."""
    PRINTED = 32
    """A path that is only printed: no constant, unless the program defines the printing functions itself."""
    PRINTS = 64
    """No path, but a definition of a printing function."""
    ASSERTS = 128
    """No constant, like ``PRINTED``: a use of ``assert``, which NVRTC defines to print the path."""


_CALL = PathConstants.HERE | PathConstants.CALLER
_MENTIONS = {
    b"__FILE__": PathConstants.HERE,
    b"__BASE_FILE__": PathConstants.MAIN,
    b"__FILE_NAME__": PathConstants.LAST,
    b"__builtin_FILE_NAME": PathConstants.LAST,
    b"__builtin_FILE": _CALL,
    b"__builtin_source_location": _CALL,
    b"_CCCL_BUILTIN_FILE": _CALL,
    b"source_location": _CALL,
    b"__PRETTY_FUNCTION__": PathConstants.TYPES,
}
# Nothing precedes the alternatives, so that the engine can skip to where one may begin.
_MENTION = re.compile(rb"(?:" + b"|".join(_MENTIONS) + rb")(?!\w)")
_IN_WORD = re.compile(rb"\w")


def path_constants(text: bytes) -> tuple[PathConstants, set[bytes]]:
    """The paths of which a text may make constants, and its macros that may make one where they are used.

    The text has logical lines and no comments.
    """
    found, macros = PathConstants.NOTHING, set[bytes]()
    if (b"printf" in text or b"__assert" in text) and _DEFINED.search(text):
        found = PathConstants.PRINTS
    if b"assert" in text and _ASSERT.search(text):
        found |= PathConstants.ASSERTS
    if not any(word in text for word in _LIKELY) or _CCCL.search(text):
        return found, macros
    for mention in _MENTION.finditer(text):
        start = mention.start()
        line = text.rfind(b"\n", 0, start) + 1
        if (start and _IN_WORD.match(text, start - 1)) or _INCLUDE.match(text, line):
            continue
        if _is_printed(text, line, mention):
            found |= PathConstants.PRINTED
            continue
        kind = _MENTIONS[mention[0]]
        if kind & PathConstants.HERE and (definition := _DEFINE.match(text, line)):
            macros.add(definition[1])
        else:
            found |= kind
    return found, macros


def prints_anew(definitions: bytes) -> bool:
    """Whether operands of ``#define``, one per line, define a printing function as a macro."""
    return _REDEFINED.search(definitions) is not None


def _is_printed(text: bytes, line: int, mention: re.Match[bytes]) -> bool:
    """Whether a mention is passed on whole to something that can only print it, or is in a literal."""
    begin = line
    if not _DEFINE.match(text, line):
        nearest = max(text.rfind(sign, 0, mention.start()) for sign in (b";", b"{", b"}"))
        begin = max(nearest + 1, mention.start() - _FARTHEST, 0)
    calls: list[bytes] = []
    for token in _TOKEN.finditer(text, begin, mention.end() + _LONGEST):
        if token.start() >= mention.end():
            break
        if token.end() > mention.start():
            return False  # it looks like part of a literal, but may be outside
        if token["open"]:
            calls.append(token["name"])
        elif token[0] == b")" and calls:
            calls.pop()
    if len(calls) > 1 and calls[-1] == b"message" and calls[-2].endswith(b"PRAGMA"):
        return True
    whole = _BEFORE.search(text, begin, mention.start()) and _AFTER.match(text, mention.end())
    if not calls or (not whole and b"asm" not in calls[-1]):
        return False
    return _PRINTS.fullmatch(calls[-1]) is not None
