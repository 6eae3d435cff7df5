"""The content of pickles, from their opcodes alone: nothing in them is looked up, created or called."""

import io
import pickletools

from gpucache.answers.entries import FindingKind, Problem

_NEWEST = 5
"""The last protocol whose opcodes are known."""


def values(data: bytes, pickles: int) -> tuple[list[str | bytes], Problem | None]:
    """The texts and bytes in a number of consecutive pickles, and why the data do not begin with these."""
    found: list[str | bytes] = []
    stream = io.BytesIO(data)
    try:
        for _ in range(pickles):
            for code, value, _ in pickletools.genops(stream):
                if code.name == "FRAME" and int(value or 0) > len(data) - stream.tell():
                    return found, Problem(FindingKind.TRUNCATED, "ends in the middle of a frame of a pickle")
                if code.name == "PROTO" and int(value or 0) > _NEWEST:
                    return found, Problem(FindingKind.CORRUPT, f"is not a pickle (protocol {value})")
                if isinstance(value, str | bytes):
                    found.append(value)
    except Exception as error:  # the opcodes of arbitrary bytes can raise anything
        if stream.tell() >= len(data):
            return found, Problem(FindingKind.TRUNCATED, "ends in the middle of a pickle")
        return found, Problem(FindingKind.CORRUPT, f"is not a pickle ({error})")
    return found, None
