"""Names of programs, from sources of any shape."""

import subprocess
import sys

import pytest

from gpucache.engine.naming import program_name
from tests.patience import PATIENCE_S


@pytest.mark.parametrize(
    "source",
    [
        "'__kernel ' + '__attribute__((a)) ' * 40 + 'x'",
        "'__kernel ' + '__attribute__((a(b)(c))) ' * 40 + 'x'",
        "'__kernel __attribute__((' + '()' * 100_000",
        "'__global__ ' + '__launch_bounds__(1) ' * 10_000",
        "'kernel void ' * 80_000",
        "'kernel void a(' * 70_000",
        "'#define a b\\n' * 80_000",
        "'/* ' * 330_000",
    ],
)
def test_a_name_is_soon_found_or_not(source: str) -> None:
    """A declaration of many attributes that never becomes a kernel ends without trying every split."""
    asked = f"assert program_name(({source}).encode()) == 'unnamed'"
    script = f"from gpucache.engine.naming import program_name; {asked}"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE_S)


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


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (
            "__kernel void __attribute__ ((reqd_work_group_size(16, 1, 1))) solve(__global float *a) {}",
            "solve",
        ),
        ("kernel\nvoid solve(global float *a)\n{}", "solve"),
        ("void kernel solve(global float *a) {}", "solve"),
        ("__kernel void solve(__global float *a) __attribute__((always_inline)) {}", "solve"),
        (
            "#define KERNEL __kernel\nKERNEL\nREQD_WG_SIZE(WG, 1, 1)\nvoid scan_lev1(GLOBAL float *a) {}",
            "scan_lev1",
        ),
        ("#define NAME solve_Iq\n#define KERNEL_NAME NAME\nkernel void KERNEL_NAME(int n) {}", "solve_Iq"),
        (
            '#ifdef GPU\n#define kernel extern "C" __global__\n#else\n#define kernel\n#endif\n'
            "kernel void solve(int n) {}",
            "solve",
        ),
        ("// the __kernel void old(int a) {}\n/* kernel void older() {} */ kernel void solve() {}", "solve"),
        ("#define MAKE(T) \\\n __kernel void add_##T(T a) {}\nkernel void solve() {}", "solve"),
        ("#define MAKE(T) __kernel void add_##T(T a) {}\nMAKE(int)", "unnamed"),
        ("template<class T> __global__ void __launch_bounds__(128, 2) solve(T *a) {}", "solve"),
        ('extern "C" __global__ void solve(int *a);\n', "solve"),
        ("static void run(void (*kernel)(int), int x) { kernel(x); }", "unnamed"),
        ("int kernel = 4; __global__ void solve(int a) {}", "solve"),
        ("kernel void solve(", "unnamed"),
    ],
)
def test_a_kernel_is_named_as_real_programs_write_it(source: str, name: str) -> None:
    """Attributes, macros for qualifiers and names, comments and templates do not hide a kernel's name."""
    assert program_name(source.encode()) == name
