"""Names of programs, from sources of any shape."""

import subprocess
import sys

import pytest

from gpucache.engine.naming import program_name


@pytest.mark.parametrize(
    "source",
    [
        "'__kernel ' + '__attribute__((a)) ' * 40 + 'x'",
        "'__kernel ' + '__attribute__((a(b)(c))) ' * 40 + 'x'",
        "'__kernel __attribute__((' + '()' * 100_000",
        "'__global__ ' + '__launch_bounds__(1) ' * 10_000",
    ],
)
def test_a_name_is_soon_found_or_not(source: str) -> None:
    """A declaration of many attributes that never becomes a kernel ends without trying every split."""
    asked = f"assert program_name(({source}).encode()) == 'unnamed'"
    script = f"from gpucache.engine.naming import program_name; {asked}"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=20)


@pytest.mark.parametrize(
    "attributes",
    [
        "__attribute__((reqd_work_group_size(64, 1, 1)))",
        "__attribute__((vec_type_hint(float4))) __attribute__((reqd_work_group_size(8, 8, 1)))",
        "__attribute__((a, b(1)))",
    ],
)
def test_a_name_stands_behind_attributes(attributes: str) -> None:
    """A kernel is named whatever attributes stand before its type."""
    assert program_name(f"__kernel {attributes} void solve(__global float *a) {{}}".encode()) == "solve"
