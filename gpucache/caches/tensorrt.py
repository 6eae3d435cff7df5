"""TensorRT's plans and timing caches, whose beginnings show damage; several owners keep such files.

Source: NVIDIA's ``trtexec`` (``samples/common/sampleEngines.cpp``) and Torch-TensorRT, which compare the tag;
TensorRT itself is not public, and no file written on a GPU was available. A plan begins with ``ftrt``, u32
serialization version and, for version 0, TensorRT's version in the bytes 24 to 27; before TensorRT 8.6 with
another tag, by reports ``ptrt``. Its size and sections, and the tag of a timing cache, are not documented, so
a missing end is not seen. Must not know whose file it is.
"""

from gpucache.answers.entries import FindingKind, Problem

TAG = b"ftrt"
START_BYTES = 28
_TAGS = (TAG, b"ptrt")


def is_plan(start: bytes) -> bool:
    """Whether a file begins as a plan, or is empty."""
    return not start or start.startswith(_TAGS)


def version(start: bytes) -> tuple[tuple[str, str], ...]:
    """TensorRT's version from the first ``START_BYTES`` of a plan, as a toolchain; empty if it has none."""
    known = len(start) >= START_BYTES and start.startswith(TAG + b"\0\0\0\0")
    return (("TensorRT", ".".join(map(str, start[24:28]))),) if known else ()


def plan_problem(start: bytes, end: str) -> Problem | None:
    """The problem of a plan by its first ``START_BYTES``; ``end`` is the effect on a program."""
    if not start:
        return Problem(FindingKind.TRUNCATED, f"its engine is empty; {end}")
    if not is_plan(start):
        detail = f"its engine begins with {start[:8].hex(' ')}, not as a plan of TensorRT's; {end}"
        return Problem(FindingKind.MISLABELLED, detail)
    if len(start) < START_BYTES:
        return Problem(FindingKind.TRUNCATED, f"its engine ends in its header; {end}")
    return None


def timing_problem(start: bytes) -> Problem | None:
    """The problem of a timing cache by its first bytes; an empty one is a new one."""
    if not start or start.strip(b"\0"):
        return None
    detail = "it begins with zeros, not with a tag: TensorRT does not use it, or builds of engines fail"
    return Problem(FindingKind.CORRUPT, detail)
