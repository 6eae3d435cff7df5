"""Which change of options explains another key."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches.futhark import changes, searching
from gpucache.caches.futhark.changes import Edit, label_of, likely, natural
from gpucache.caches.futhark.keys import contribution, total
from gpucache.caches.futhark.searching import Explanation, Joined, Separate, search
from tests.caches.futhark.build import OPENCL_OPTIONS, OPTIONS

_TILE = b"-Dval_main_tile_size_6=16"
_SET = b"-Dset_main_tile_size_6=0"
_TOKENS = tuple(OPENCL_OPTIONS.split(b" "))


def _instead(old: bytes, *new: bytes, options: Sequence[bytes] = OPTIONS) -> tuple[bytes, ...]:
    place = options.index(old)
    return (*options[:place], *new, *options[place + 1 :])


def _explain(stored: Sequence[bytes], wanted: Sequence[bytes] = OPTIONS, **environ: str) -> Explanation:
    difference = total(stored) ^ total(wanted)
    found = search(wanted, "cuda", environ, {difference}, signed=True)
    return found.get(difference, Explanation())


def _pairs(explanation: Explanation) -> set[tuple[bytes | None, bytes | None]]:
    assert explanation.only is not None, explanation
    return {(edit.stored, edit.wanted) for edit in explanation.only}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_was_not_there(option: bytes) -> None:
    """Each option left out is named."""
    assert _pairs(_explain(_instead(option))) == {(None, option)}


@pytest.mark.parametrize(
    "option",
    [b"-G", b"-lineinfo", b"--use_fast_math", b"-I/opt/cuda/include", b"-I/usr/local/cuda-12.4/include"],
)
def test_an_option_that_was_there(option: bytes) -> None:
    """Well-known options are found though nobody lists them."""
    assert _pairs(_explain((*OPTIONS, option))) == {(option, None)}


def test_a_folder_of_the_environment_is_tried() -> None:
    """A folder that nobody would guess is found if it is given."""
    stored = (*OPTIONS, b"-I/sw/cuda/12.1.0-gcc/include")
    assert _explain(stored).alternatives == ()
    assert _pairs(_explain(stored, CUDA_HOME="/sw/cuda/12.1.0-gcc")) == {(stored[-1], None)}


@pytest.mark.parametrize("name", [b"compute_90", b"compute_75", b"compute_121", b"compute_30"])
def test_another_architecture(name: bytes) -> None:
    """Another device of the table is named."""
    assert _pairs(_explain(_instead(b"compute_80", name))) == {(name, b"compute_80")}


def test_an_architecture_of_the_user() -> None:
    """It takes the place of two strings."""
    stored = (b"-arch=sm_86", *OPTIONS[2:])
    assert _pairs(_explain(stored)) == {(b"-arch=sm_86", b"-arch"), (None, b"compute_80")}


def test_futharks_architecture_instead_of_the_users() -> None:
    """The other way round it is found as well."""
    wanted = (b"--gpu-architecture=compute_75", *OPTIONS[2:])
    assert _pairs(_explain(OPTIONS, wanted)) == {(b"-arch", wanted[0]), (b"compute_80", None)}


def test_debugging() -> None:
    """Debugging changes three options at once, in both directions."""
    debugging = _instead(b"--disable-warnings", b"-G", b"-lineinfo")
    expected = {(b"-G", None), (b"-lineinfo", None), (None, b"--disable-warnings")}
    assert _pairs(_explain(debugging)) == expected
    assert _pairs(_explain(OPTIONS, debugging)) == {(right, left) for left, right in expected}


@pytest.mark.parametrize("value", [0, 1, 17, 32, 48, 1000, 4095, 1 << 20])
def test_another_value(value: int) -> None:
    """A parameter's other value is named, large ones where they are powers of two."""
    stored = b"-Dval_main_tile_size_6=%d" % value
    assert _pairs(_explain(_instead(_TILE, stored))) == {(stored, _TILE)}


def test_a_parameter_that_was_given() -> None:
    """Giving a parameter sets its flag and its value."""
    stored = _instead(_TILE, b"-Dval_main_tile_size_6=8", options=_instead(_SET, b"-Dset_main_tile_size_6=1"))
    assert _pairs(_explain(stored)) == {
        (b"-Dval_main_tile_size_6=8", _TILE),
        (b"-Dset_main_tile_size_6=1", _SET),
    }


def test_both_names_of_the_block_size() -> None:
    """A device with another block size changes two options."""
    stored = _instead(b"-Dmax_thread_block_size=1024", b"-Dmax_thread_block_size=512")
    stored = _instead(b"-DMAX_THREADS_PER_BLOCK=1024", b"-DMAX_THREADS_PER_BLOCK=512", options=stored)
    assert {left for left, _ in _pairs(_explain(stored))} == {
        b"-Dmax_thread_block_size=512",
        b"-DMAX_THREADS_PER_BLOCK=512",
    }


def test_two_changes() -> None:
    """An option that is not given now and another value are found together."""
    stored = (*_instead(_TILE, b"-Dval_main_tile_size_6=32"), b"-I/opt/cuda/include")
    assert _pairs(_explain(stored)) == {
        (b"-Dval_main_tile_size_6=32", _TILE),
        (b"-I/opt/cuda/include", None),
    }


def test_changes_that_the_key_cannot_tell_apart_are_all_told() -> None:
    """Two parameters whose names differ by little add the same for the same change of value."""
    wanted = (b"-Dval_aa=16", b"-Dval_ae=16")
    found = _explain((b"-Dval_aa=32", b"-Dval_ae=16"), wanted)
    assert found.only is None
    assert [[edit.stored for edit in way] for way in found.alternatives] == [
        [b"-Dval_aa=32"],
        [b"-Dval_ae=32"],
    ]


@pytest.mark.parametrize(
    "stored", [b"-Dmax_shared_memory=232448", b"-Dmax_shared_memory=49136", b"-Dmax_registers=32768"]
)
def test_another_size_of_the_device(stored: bytes) -> None:
    """Sizes that devices have are named."""
    wanted = next(option for option in OPTIONS if option.startswith(stored.partition(b"=")[0]))
    assert _pairs(_explain(_instead(wanted, stored))) == {(stored, wanted)}


def test_another_source_is_not_explained() -> None:
    """No change of options gives what another source does."""
    assert _explain((*OPTIONS, b"kernel void g(){ /* quite another one */ }")).alternatives == ()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b"size_6=16", b"size_6=64", {(b"-Dval_main_tile_size_6=64", _TILE)}),
        (b"-DTR_BLOCK", b"-cl-mad-enable -DTR_BLOCK", {(b"-cl-mad-enable", None)}),
        (b" -DTR_TILE_DIM=32", b"", {(None, b"-DTR_TILE_DIM=32")}),
        (
            b" -cl-fp32-correctly-rounded-divide-sqrt",
            b"",
            {(None, b"-cl-fp32-correctly-rounded-divide-sqrt")},
        ),
        (b"-DLOCKSTEP_WIDTH=32 ", b"", {(None, b"-DLOCKSTEP_WIDTH=32")}),
        (
            b"_6=0 -Dval_main_tile_size_6=16",
            b"_6=1 -Dval_main_tile_size_6=8",
            {(b"-Dset_main_tile_size_6=1", _SET), (b"-Dval_main_tile_size_6=8", _TILE)},
        ),
    ],
)
def test_opencl_parts_of_the_string(
    old: bytes, new: bytes, expected: set[tuple[bytes | None, bytes | None]]
) -> None:
    """One part of OpenCL's string that differs is named, at either end as well."""
    assert old in OPENCL_OPTIONS
    difference = contribution(OPENCL_OPTIONS.replace(old, new)) ^ contribution(OPENCL_OPTIONS)
    found = search(_TOKENS, "opencl", {}, {difference}, signed=True)
    assert _pairs(found[difference]) == expected


def test_hip_architecture() -> None:
    """HIP's architecture is one option, with features behind it."""
    wanted = (b"--gpu-architecture=gfx90a:sramecc+:xnack-", b"-DX=1")
    stored = (b"--gpu-architecture=gfx1100", b"-DX=1")
    difference = total(wanted) ^ total(stored)
    found = search(wanted, "hip", {}, {difference}, signed=True)
    assert _pairs(found[difference]) == {(stored[0], wanted[0])}


@pytest.mark.parametrize(
    ("option", "label"),
    [(b"compute_80", b"-arch"), (b"-DX=1", b"-DX"), (b"-I/x/include", b"-I"), (b"-G", b"-G")],
)
def test_labels(option: bytes, label: bytes) -> None:
    """An option is called by its name without the value."""
    assert label_of(option) == label


def test_the_number_of_changes_is_bounded() -> None:
    """However many options there are, what is tried is not many times more."""
    many = tuple(b"-Dx%d=%d" % (number, number) for number in range(5000))
    assert sum(1 for _ in likely(many, "cuda", {})) <= changes.LIKELY_LIMIT
    assert sum(1 for _ in natural(many)) <= changes.NATURAL_LIMIT
    assert sum(1 for _ in changes.every(many)) <= changes.EVERY_LIMIT


_OPTION = st.sampled_from([*OPTIONS, b"-Dn=7", b"-G"]) | st.binary(max_size=20)


@given(st.lists(_OPTION, max_size=6), st.sampled_from(["cuda", "hip"]), st.data())
def test_a_change_that_is_tried_is_found(options: list[bytes], backend: str, data: st.DataObject) -> None:
    """Whatever the options, a likely change explains the key that it makes."""
    change = data.draw(st.sampled_from([*likely(options, backend, {})]))
    number = Separate(options, signed=True).added(change)
    found = search(options, backend, {}, {number}, signed=True)
    if number:
        pairs = [{(edit.stored, edit.wanted) for edit in way} for way in found[number].alternatives]
        assert {(edit.stored, edit.wanted) for edit in change} in pairs or len(pairs) == 8


@given(st.lists(st.binary(max_size=8).map(lambda one: one.replace(b" ", b"")), min_size=1), st.data())
def test_parts_of_a_string_are_edited_right(tokens: list[bytes], data: st.DataObject) -> None:
    """What a change of a part adds is what the edited string adds, wherever the part is."""
    place = data.draw(st.integers(0, len(tokens) - 1))
    new = data.draw(st.none() | st.just(b"-new"))
    edited = [*tokens[:place], *([] if new is None else [new]), *tokens[place + 1 :]]
    number = Joined(tokens, signed=True).added((Edit(new, tokens[place], place),))
    assert number == contribution(b" ".join(edited)) ^ contribution(b" ".join(tokens))


def test_no_difference_is_searched_for_nothing() -> None:
    """Without a difference nothing is tried."""
    assert searching.search(OPTIONS, "cuda", {}, set(), signed=True) == {}


def test_a_partner_that_keeps_its_value_is_no_second_change() -> None:
    """One changed block size is one explanation, although another option holds its old value."""
    size = b"-Dmax_thread_block_size=1024"
    wanted = _instead(size, b"-Dmax_thread_block_size=512")
    assert _pairs(_explain(OPTIONS, wanted)) == {(size, b"-Dmax_thread_block_size=512")}
