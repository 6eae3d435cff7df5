"""The nearest entry to a request, by the fields that entries store."""

import pytest

from gpucache.caches.comparison import nearest
from gpucache.errors import FormatError

_ASKED = {"source": "s", "device": "d", "options": "-O3"}


@pytest.mark.parametrize(
    ("entries", "found", "differing"),
    [
        ([{**_ASKED, "options": "-O1"}, {**_ASKED, "options": "-O2"}], 0, ("options",)),
        ([{**_ASKED, "options": "-O1", "device": "e"}, {**_ASKED, "options": "-O2"}], 1, ("options",)),
        ([{**_ASKED, "options": "-O1"}, _ASKED], 1, ()),
        ([{}, _ASKED], 1, ()),
    ],
    ids=["the first of equally near ones", "fewer differences", "the same", "one that cannot be read"],
)
def test_the_nearest_entry(entries: list[dict[str, str]], found: int, differing: tuple[str, ...]) -> None:
    """It has the fewest differences, and an entry that cannot be read is passed over."""

    def stored(entry: dict[str, str]) -> dict[str, str]:
        if not entry:
            raise FormatError("cut")
        return entry

    near = nearest(entries, _ASKED, stored, {})
    assert near is not None
    assert (entries.index(near.item), near.differing) == (found, differing)
