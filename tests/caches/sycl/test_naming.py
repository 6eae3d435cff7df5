"""Names of folders and files, and the keys made of them."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches.sycl import naming
from gpucache.caches.sycl.naming import Family, Group

_IR_KEY = base64.b64encode(bytes(range(200, 232))).decode().replace("/", "-")


def test_the_first_digits_of_a_key_tell_entries_apart() -> None:
    """By any of the hashes that their folders are named by: twelve of them are shown."""
    parts = ("1", "2", "3", "4")
    others = [(*parts[:place], "9", *parts[place + 1 :]) for place in range(4)]
    shown = {Group(Family.PROGRAM, one).key("0")[:12] for one in (parts, *others)}

    assert len(shown) == 5
    assert Group(Family.PROGRAM, parts).key("7").endswith("-7")


def test_folders_of_small_numbers_are_those_of_another_program() -> None:
    """A hash has 15 digits or more but once in 20,000 times: one of four may be short, and two are not."""
    long = str(10**18)

    assert naming.group_of((long, "7", long, long)) is not None
    assert naming.group_of((long, "7", "12", long)) is None
    assert naming.group_of((naming.KERNELS, "1", "2", long)) is None


def test_a_folder_of_ir_is_known_by_its_name() -> None:
    """256 bits in Base64."""
    group = naming.group_of((naming.KERNELS, _IR_KEY))

    assert group is not None
    assert group.family is Family.IR


@pytest.mark.parametrize(
    "parts", [("1", "2", "3", "x"), ("1", "2", "3", str(1 << 64)), ("01", "2", "3", "4"), ("1", "2", "3"), ()]
)
def test_other_folders_hold_no_entries(parts: tuple[str, ...]) -> None:
    """A name that is no unsigned 64-bit number without leading zeros is foreign, as is another depth."""
    assert naming.group_of(parts) is None


@given(
    st.lists(st.text(max_size=24) | st.just(naming.KERNELS) | st.integers(0, 1 << 70).map(str), max_size=5)
)
def test_any_names_give_a_group_with_a_key_or_none(names: list[str]) -> None:
    """No name raises, and every group has hex digits for a key."""
    group = naming.group_of(tuple(names))

    assert group is None or int(group.hex, 16) >= 0


@pytest.mark.parametrize(
    "name", ["00.bin", "-1.bin", "0.BIN", "0.bin2", "0bin", "x_access_time.txt", "1e3.src"]
)
def test_foreign_file_names_belong_to_no_entry(name: str) -> None:
    """Only what libsycl writes is taken for its own."""
    assert naming.split_file(name) is None
