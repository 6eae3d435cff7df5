"""The hash that Futhark's keys are made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches.futhark.format import (
    contribution,
    key_of,
    native_signed,
    to_bytes,
    total,
)

_KERNEL = b"kernel void f(){}"
_SEVERAL = (b"-arch", b"compute_90", b"-default-device", b"--disable-warnings", _KERNEL)


@pytest.mark.parametrize(
    ("inputs", "signed", "expected"),
    [
        ((), True, "00" * 32),
        ((b"abc",), True, "06b60200287759008b5c880b" + "00" * 20),
        ((_KERNEL,), True, "3cda8e07218b0f17bfd9bd098d5d78346443cd6a20e7640de9fd819976a281de"),
        (_SEVERAL, True, "fd4dffe8a7de7e449c4c7eba8774c80826403103dd24bf503f9dc7d5a128c9b0"),
        ((b"-DX=1", b"-DX=1"), True, "00" * 32),
        (("æø".encode(),), True, "68b502000e62590091a3850b69153a7c" + "00" * 16),
        (("æø".encode(),), False, "68b602000e84590091068a0b69d9ca7c" + "00" * 16),
    ],
)
def test_keys_as_futharks_own_routine_makes_them(
    inputs: tuple[bytes, ...], signed: bool, expected: str
) -> None:
    """Short inputs reach the first words only, equal ones cancel, their order does not matter, and bytes from
    0x80 on count differently where char has no sign."""
    assert to_bytes(total(inputs, signed=signed)).hex() == expected
    assert to_bytes(total(inputs[::-1], signed=signed)).hex() == expected


def test_key_of_takes_text_and_bytes() -> None:
    """Options may be text, whatever bytes a path in them had."""
    assert key_of(("-I/\udcff",), _KERNEL) == key_of((b"-I/\xff",), _KERNEL)


def test_the_machine_is_asked_without_error() -> None:
    """Whether char has a sign here is known for every machine."""
    assert native_signed() in (True, False)


@given(st.binary(max_size=80).filter(bytes.isascii))
def test_the_sign_does_not_matter_to_ascii(data: bytes) -> None:
    """A program in plain ASCII has one key on every machine."""
    assert contribution(data) == contribution(data, signed=False)
