"""Mangled names as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.payload.mangled import readable

_ADD = (
    "_ZTSN4dpnp6tensor7kernels3add18add_strided_kernelIfffNS0_12offset_utils27ThreeOffsets_StridedIndexerEEE"
)


@pytest.mark.parametrize(
    ("mangled", "shown"),
    [
        (_ADD, "dpnp::tensor::kernels::add::add_strided_kernel<float, float, float, ...>"),
        ("_ZTSN4dpnp12constructors6kernelIfEE", "dpnp::constructors::kernel<float>"),
        ("_ZTSN1a1bI1cEE", "a::b<...>"),
        ("_ZTS1K", "K"),
        ("_ZTSSt4plusIdE", "std::plus<double>"),
        ("_ZTSN12_GLOBAL__N_11KE", "(anonymous)::K"),
        ("_Z3addPfi", "add"),
        ("_ZN2ns3addEPfi", "ns::add"),
        ("_ZTSN4sycl3_V16detail19__pf_kernel_wrapperIN2ns1KEEE", "ns::K"),
    ],
)
def test_the_identifiers_of_a_name_are_shown(mangled: str, shown: str) -> None:
    """Joined, with the first plain types of the template's arguments."""
    assert readable(mangled) == shown


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "_ZTS",
        "_ZTSZ4mainEUlvE_",
        "_ZTSNK1a1bE",
        "_ZTSN1a1bEx",
        "_ZTSN1aIfE1bE",
        "_ZTS99short",
        "_ZTSN3a\x1bbE",
        "_ZTSN4sycl3_V16detail19__pf_kernel_wrapperIZ4mainEUlvE_EE",
        "_ZTS1K" + "x" * 5000,
    ],
)
def test_what_is_not_simple_stays_as_it_is(name: str) -> None:
    """No readable name is invented."""
    assert readable(name) == name


@given(st.text(alphabet="_ZTSNIEfi0123456789abSt:", max_size=60).map("_ZTS".__add__))
def test_any_name_is_shown_somehow(name: str) -> None:
    """No name raises, or becomes empty or long."""
    assert 0 < len(readable(name)) <= 2 * len(name) + 40
