"""Which change of one option explains another key."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches.futhark.file import EDIT_LIMIT, Edit, Question, added, contribution, edits, search, total
from tests.caches.futhark.build import OPENCL_OPTIONS, OPTIONS

_TILE = b"-Dval_main_tile_size_6=16"
_LAST = b"-cl-fp32-correctly-rounded-divide-sqrt"
_HIP = (b"--gpu-architecture=gfx90a:sramecc+:xnack-", b"-DX=1")
_Pairs = list[tuple[bytes | None, bytes | None]]


def _question(options: Sequence[bytes], backend: str = "cuda") -> Question:
    return Question(b"", tuple(options), backend)


def _explain(stored: Sequence[bytes], wanted: Sequence[bytes] = OPTIONS) -> _Pairs:
    """Every change that explains the key of some options: what was stored, and what is wanted."""
    backend = "cuda" if wanted[0] != _HIP[0] else "hip"
    difference = total(stored) ^ total(wanted)
    found = search(_question(wanted, backend), {difference})
    return [(edit.stored, edit.wanted) for edit in found[difference]]


def _instead(old: bytes, *new: bytes, options: Sequence[bytes] = OPTIONS) -> tuple[bytes, ...]:
    place = options.index(old)
    return (*options[:place], *new, *options[place + 1 :])


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_was_not_there(option: bytes) -> None:
    """Each option left out is named."""
    assert _explain(_instead(option)) == [(None, option)]


@pytest.mark.parametrize(
    "option",
    [b"-G", b"-lineinfo", b"--use_fast_math", b"-I/opt/cuda/include"],
)
def test_an_option_that_was_there(option: bytes) -> None:
    """Well-known options are found though nobody lists them."""
    assert _explain((*OPTIONS, option)) == [(option, None)]


def test_a_folder_of_the_environment_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that no program would guess is found if CUDA_HOME names it."""
    stored = (*OPTIONS, b"-I/sw/cuda/12.1.0-gcc/include")
    assert _explain(stored) == []
    monkeypatch.setenv("CUDA_HOME", "/sw/cuda/12.1.0-gcc")
    assert _explain(stored) == [(stored[-1], None)]


@pytest.mark.parametrize(
    ("wanted", "stored"),
    [
        *((b"compute_80", name) for name in (b"compute_90", b"compute_75", b"compute_121", b"sm_86")),
        *((_TILE, b"-Dval_main_tile_size_6=%d" % value) for value in (0, 1, 17, 48, 1000, 4095, 1 << 20)),
        (b"-Dset_main_tile_size_6=0", b"-Dset_main_tile_size_6=1"),
        (b"-Dmax_shared_memory=165888", b"-Dmax_shared_memory=232448"),
        (b"-Dmax_shared_memory=165888", b"-Dmax_shared_memory=49136"),
        (b"-Dmax_registers=65536", b"-Dmax_registers=32768"),
        (b"-Dmax_thread_block_size=1024", b"-Dmax_thread_block_size=512"),
        (b"-I/usr/include", b"-I/opt/cuda/include"),
    ],
)
def test_another_value(wanted: bytes, stored: bytes) -> None:
    """An option's other value is named: of the table, small, a power of two, or a size that devices have."""
    assert _explain(_instead(wanted, stored)) == [(stored, wanted)]


def test_changes_that_the_key_cannot_tell_apart_are_all_told() -> None:
    """Two parameters whose names differ by little add the same for the same change of value."""
    found = _explain((b"-Dval_aa=32", b"-Dval_ae=16"), (b"-Dval_aa=16", b"-Dval_ae=16"))
    assert [stored for stored, _ in found] == [b"-Dval_aa=32", b"-Dval_ae=32"]


def test_another_source_is_not_explained() -> None:
    """No change of options gives what another source does, nor what two changes do."""
    assert _explain((*OPTIONS, b"kernel void g(){ /* quite another one */ }")) == []
    assert _explain((*_instead(_TILE, b"-Dval_main_tile_size_6=32"), b"-I/opt/cuda/include")) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b"size_6=16", b"size_6=64", (b"-Dval_main_tile_size_6=64", _TILE)),
        (b"-DTR_BLOCK", b"-cl-mad-enable -DTR_BLOCK", (b"-cl-mad-enable", None)),
        (b" -DTR_TILE_DIM=32", b"", (None, b"-DTR_TILE_DIM=32")),
        (b" " + _LAST, b"", (None, _LAST)),
        (b"-DLOCKSTEP_WIDTH=32 ", b"", (None, b"-DLOCKSTEP_WIDTH=32")),
    ],
)
def test_opencl_parts_of_the_string(
    old: bytes, new: bytes, expected: tuple[bytes | None, bytes | None]
) -> None:
    """One part of OpenCL's string that differs is named, at either end as well."""
    assert old in OPENCL_OPTIONS
    difference = contribution(OPENCL_OPTIONS.replace(old, new)) ^ contribution(OPENCL_OPTIONS)
    found = search(_question(OPENCL_OPTIONS.split(b" "), "opencl"), {difference})
    assert [(edit.stored, edit.wanted) for edit in found[difference]] == [expected]


def test_hip_architecture() -> None:
    """HIP's architecture is one option, with features behind it."""
    stored = (b"--gpu-architecture=gfx1100", b"-DX=1")
    assert _explain(stored, _HIP) == [(stored[0], _HIP[0])]


@pytest.mark.parametrize(
    ("option", "label"),
    [(b"compute_80", "-arch"), (b"-DX=1", "-DX"), (b"-I/x/include", "-I"), (b"-G", "-G")],
)
def test_labels(option: bytes, label: str) -> None:
    """An option is called by its name without the value."""
    assert Edit(None, option, 0).difference.label == label


def test_the_number_of_changes_is_bounded() -> None:
    """However many options there are, what is tried is not many times more."""
    many = tuple(b"-Dx%d=%d" % (number, number) for number in range(5000))
    assert sum(1 for _ in edits(_question(many))) <= EDIT_LIMIT


_OPTION = st.sampled_from([*OPTIONS, b"-Dn=7", b"-G"]) | st.binary(max_size=20)


@given(st.lists(_OPTION, max_size=6), st.sampled_from(["cuda", "hip"]), st.data())
def test_a_change_that_is_tried_is_found(options: list[bytes], backend: str, data: st.DataObject) -> None:
    """Whatever the options, a change that is tried explains the key that it makes."""
    question = _question(options, backend)
    tried = [*edits(question)]
    edit = data.draw(st.sampled_from(tried))
    if number := added(question)(edit):
        pairs = [(one.stored, one.wanted) for one in search(question, {number})[number]]
        assert (edit.stored, edit.wanted) in pairs or len(pairs) == 8


@given(st.lists(st.binary(max_size=8).map(lambda one: one.replace(b" ", b"")), min_size=1), st.data())
def test_parts_of_a_string_are_edited_right(tokens: list[bytes], data: st.DataObject) -> None:
    """An edit of any part changes the sum exactly as the edited string does."""
    place = data.draw(st.integers(0, len(tokens) - 1))
    new = data.draw(st.none() | st.just(b"-new"))
    edited = [*tokens[:place], *([] if new is None else [new]), *tokens[place + 1 :]]
    number = added(_question(tokens, "opencl"))(Edit(new, tokens[place], place))
    assert number == contribution(b" ".join(edited)) ^ contribution(b" ".join(tokens))
