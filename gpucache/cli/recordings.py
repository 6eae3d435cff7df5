"""What every verb says of a recording that it reads."""

from typing import TYPE_CHECKING

from gpucache.cli.streams import complain

if TYPE_CHECKING:
    from gpucache.recording.reading import RecordingFolder

_SHOWN = 5


def tell_damage(found: "RecordingFolder") -> None:
    """Say what of a recording does not read, and is passed over."""
    for one in found.damage[:_SHOWN]:
        place = f"{one.file}, line {one.line}" if one.line else one.file
        complain(f"gpucache: {place} of the recording is passed over: {one.why}")
    if len(found.damage) > _SHOWN:
        complain(f"gpucache: {len(found.damage) - _SHOWN} more lines of the recording are passed over")
