"""What the environment says of the driver's cache: place, size, and whether it is used at all.

Source: CUDA Programming Guide, "CUDA Environment Variables". What the driver makes of values that
the guide does not provide for is not known, and is said to be so. Must not touch files.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

NAME = "cuda"
PATH = "CUDA_CACHE_PATH"
DISABLE = "CUDA_CACHE_DISABLE"
MAXSIZE = "CUDA_CACHE_MAXSIZE"
DEFAULT_BYTES = 1 << 30
"""Of desktops and servers; 256 MiB on embedded ones and with older drivers."""
MOST_BYTES = 4_294_967_296
MOVE = f"set {PATH} to a folder on a local disk"
_NUMBER = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Limit:
    """How much is kept; ``size_bytes`` is None where that is not known."""

    size_bytes: int | None
    problem: str = ""


def root(environ: Mapping[str, str]) -> tuple[Path, str] | None:
    """Where the cache lies and what decided it; None where the environment has no home."""
    if value := environ.get(PATH):
        return Path(value), PATH
    if sys.platform == "win32":
        home, below = "APPDATA", ("NVIDIA", "ComputeCache")
    else:
        home, below = "HOME", (".nv", "ComputeCache")
    return (Path(environ[home]).joinpath(*below), home) if environ.get(home) else None


def enabled(environ: Mapping[str, str]) -> bool:
    """Whether programs read and write it."""
    return environ.get(DISABLE) != "1"


def limit(environ: Mapping[str, str]) -> Limit:
    """The size that the driver keeps to, by evicting older binaries."""
    text = environ.get(MAXSIZE, "")
    if not text:
        return Limit(DEFAULT_BYTES)
    if not _NUMBER.fullmatch(text):
        return Limit(
            None,
            f"{MAXSIZE}={text} is not a number of bytes, and what the driver makes of it is not documented; "
            f"write the digits alone, such as {MAXSIZE}={MOST_BYTES}",
        )
    size = int(text)
    if size > MOST_BYTES:
        return Limit(
            MOST_BYTES, f"{MAXSIZE}={text} is over the {MOST_BYTES} that the driver allows; set that"
        )
    if size == 0:
        return Limit(0, f"{MAXSIZE}=0 leaves no room, so every start compiles; unset it")
    return Limit(size)


def problems(environ: Mapping[str, str], place: Path, decided_by: str) -> Iterator[str]:
    """What is wrong with the variables, a sentence each."""
    if not enabled(environ):
        yield f"{DISABLE}=1 turns the cache off, so every start compiles; unset it"
    if told := limit(environ).problem:
        yield told
    if environ.get(DISABLE, "") not in ("", "0", "1"):
        yield (
            f"{DISABLE}={environ[DISABLE]} is neither 0 nor 1, and what the driver makes of it is not "
            "documented; set 1 to turn the cache off, or unset it"
        )
    if not place.is_absolute():
        what = "" if decided_by == PATH else f", or {PATH}"
        yield (
            f"{decided_by} makes it {place}, another place for every current directory; set an absolute path "
            f"in {decided_by}{what}"
        )
