"""Whether Futhark would restore a file, and if not why."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Served
from gpucache.caches.futhark.format import key_of, native_signed
from gpucache.errors import UsageError
from tests.caches.futhark.build import (
    OPENCL_OPTIONS,
    OPTIONS,
    PTX,
    SOURCE,
    SPIRV,
    asked,
    cuda_log,
    file_bytes,
    open_cache,
)

_ASKING = b"Restoring cache from from ./foo.cache..."
_TILE = b"-Dval_main_tile_size_6=16"


def _with(option: bytes, instead_of: bytes = _TILE) -> tuple[bytes, ...]:
    return tuple(option if one == instead_of else one for one in OPTIONS)


def _made(*options: bytes, source: bytes = SOURCE, payload: bytes = PTX) -> bytes:
    """A file as it is made from some options."""
    return file_bytes(key_of(options, source), payload)


def _log(*lines: bytes, options: tuple[bytes, ...] = OPTIONS) -> dict[str, Any]:
    return {"options": (), "log": cuda_log(options, *lines)}


_OTHER_TILE = _with(b"-Dval_main_tile_size_6=32")
_HIT, _CHANGED = Served.HIT, Verdict.KEY_CHANGED
_CASES: dict[str, tuple[bytes | None, dict[str, Any], Served | Verdict, str]] = {
    "the same inputs": (file_bytes(), {}, _HIT, ""),
    "options of a log": (file_bytes(), _log(_ASKING), _HIT, ""),
    "another option": (
        file_bytes(), {"options": _with(b"compute_90", b"compute_80")}, _CHANGED,
        "differs in source or other options",
    ),
    "a CUDA program compiles again": (
        file_bytes(), {"options": _OTHER_TILE}, _CHANGED,
        "",
    ),
    "a change behind the first eight bytes": (
        _made(*OPTIONS, b"-Dval_abc=16"), {"options": (*OPTIONS, b"-Dval_abc=32")}, Served.FALSE_HIT,
        "compares only the first eight bytes",
    ),
    "another source, which the file does not store": (
        _made(*OPTIONS, source=SOURCE.replace(b"= 1", b"= 2")), {}, _CHANGED,
        "differs in source or other options",
    ),
    "no file": (None, {}, Verdict.NEVER_BUILT, ""),
    **{
        f"damaged, {len(data)} bytes": (data, {}, Verdict.CORRUPT, "")
        for data in (b"", file_bytes()[:20], file_bytes()[:-1], file_bytes() + b"x", b"junk")
    },
    "a broken payload": (
        file_bytes(payload=PTX[:-2]), {}, Verdict.CORRUPT,
        "its ptx payload is broken",
    ),
    **{
        f"OpenCL's options in {len(options)}, {payload[:4]!r}": (
            _made(OPENCL_OPTIONS, payload=payload), {"options": options}, _HIT, "",
        )
        for options in ((OPENCL_OPTIONS,),) for payload in (SPIRV, PTX)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_an_answer_names_what_differs(name: str, tmp_path: Path) -> None:
    """Both keys where they differ, or what the log says."""
    data, wanted, verdict, words = _CASES[name]
    path = tmp_path / "foo.cache"
    if data is not None:
        path.write_bytes(data)
    reach = asked(path, **wanted)
    differs = ["key"] * (verdict in (_CHANGED, Served.FALSE_HIT))
    assert (reach.verdict, [one.label for one in reach.differences]) == (verdict, differs)
    assert words in reach.detail and reach.hit is (verdict is Served.HIT)
    assert verdict is not Served.HIT or (data and reach.nearest == data[16:48].hex())


def test_what_futhark_compares_is_the_same_for_another_key() -> None:
    """As those of the case with a change behind the first eight bytes."""
    made, wanted = (key_of((*OPTIONS, b"-Dval_abc=%d" % value), SOURCE) for value in (16, 32))
    assert made[:8] == wanted[:8] and made != wanted


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"kernel": (b"x",)}, "no field 'kernel'; ask for source, log, option"),
        ({"option": (b"x",)}, "--dump-cuda"),
        ({"source": (b"x",)}, "-L"),
        ({"source": (b"x",), "log": (b"no list of options",)}, "-L"),
        ({"source": (b"x", b"y"), "option": (b"x",)}, "given 2 times"),
    ],
)
def test_what_cannot_be_asked(tmp_path: Path, wanted: dict[str, tuple[bytes, ...]], message: str) -> None:
    """A wrong question is refused at once, with what to ask instead."""
    with pytest.raises(UsageError, match=message):
        list(open_cache(tmp_path).explain(wanted))


_BYTES = st.binary(max_size=40)


@given(
    _BYTES,
    st.lists(_BYTES | st.sampled_from(OPTIONS), min_size=1, max_size=4),
    _BYTES | st.just(cuda_log(OPTIONS[:3])),
    st.binary(min_size=32, max_size=32),
)
def test_any_bytes_are_explained(
    tmp_path_factory: pytest.TempPathFactory, source: bytes, options: list[bytes], log: bytes, key: bytes
) -> None:
    """Whatever is asked of whatever key, there is one answer that can be shown; the own key is a hit."""
    path = tmp_path_factory.mktemp("any") / "f.cache"
    for made, hits in ((key, (False,)), (key_of(options, source, native_signed()), (True, False))):
        path.write_bytes(file_bytes(made))
        wanted = {"source": (source,), "option": tuple(options), "log": (log,)}
        (reach,) = open_cache(path).explain(wanted)
        assert reach.hit in hits or made == key_of(options, source, native_signed())
        assert reach.detail.isprintable()
