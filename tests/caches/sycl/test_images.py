"""The names of kernels in device images."""

from hypothesis import example, given
from hypothesis import strategies as st

from gpucache.caches.sycl.slots import kernels
from tests.caches.sycl.build import spirv


def test_the_first_kernel_names_the_program() -> None:
    """Readable, with how many others there are, over all images."""
    found = kernels(spirv("_ZTS1A", "_ZTS1B") + spirv("_ZTS1C"))

    assert found.names == ("_ZTS1A", "_ZTS1B", "_ZTS1C")
    assert found.shown == "A and 2 more"


def test_a_single_kernel_is_the_name() -> None:
    """As people read it."""
    assert kernels(spirv("_ZTSN4dpnp3addE")).shown == "dpnp::add"


def test_images_cut_short_still_tell_the_names_before_the_cut() -> None:
    """A scan reads only the first part of large images."""
    images = spirv("first") + spirv("second", words=100)

    assert kernels(images[:-300]).names == ("first", "second")


def test_native_images_are_named_by_what_they_are() -> None:
    """They have no names that could be read."""
    assert kernels(b"\x7fELF" + bytes(200)).shown == "elf image"


def test_no_image_has_no_name() -> None:
    """Nothing is made up."""
    assert kernels(b"").shown == ""


def test_a_name_is_safe_on_a_terminal() -> None:
    """What is not printable is replaced."""
    assert kernels(spirv("a\x1b[2Jb")).shown == "a\N{REPLACEMENT CHARACTER}[2Jb"


@given(st.binary(max_size=120), st.integers(0, 80), st.binary(max_size=8))
@example(b"", 20, b"\x0f\0\0\0")
def test_no_bytes_raise(noise: bytes, place: int, patch: bytes) -> None:
    """Whatever is written into a module, names come back."""
    module = bytearray(spirv("kernel") + noise)
    module[place : place + len(patch)] = patch

    assert all(isinstance(name, str) for name in kernels(bytes(module)).names)
