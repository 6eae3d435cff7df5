"""The content of pickles, from their opcodes alone: nothing in them is looked up, created or called."""

import io
import pickletools

from gpucache.answers.entries import FindingKind, Problem


def values(data: bytes, pickles: int) -> tuple[list[str | bytes], Problem | None]:
    """The texts and bytes in a number of consecutive pickles, and why the data do not begin with these."""
    found: list[str | bytes] = []
    stream = io.BytesIO(data)
    try:
        for _ in range(pickles):
            found += (value for _, value, _ in pickletools.genops(stream) if isinstance(value, str | bytes))
    except Exception as error:  # the opcodes of arbitrary bytes can raise anything
        if stream.tell() >= len(data):
            return found, Problem(FindingKind.TRUNCATED, "ends in the middle of a pickle")
        return found, Problem(FindingKind.CORRUPT, f"is no pickle ({error})")
    return found, None
