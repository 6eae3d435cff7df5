"""The names of kernels, from sources of any shape."""

import subprocess
import sys

import pytest

from gpucache.engine.prepare import UNNAMED, program_name
from gpucache.payload.source import kernel_names
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
    """A declaration with many attributes that never becomes a kernel ends without trying every split."""
    asked = f"assert list(kernel_names(({source}).encode())) == []"
    script = f"from gpucache.payload.source import kernel_names; {asked}"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE_S)


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
        ("#define MAKE(T) __kernel void add_##T(T a) {}\nMAKE(int)", UNNAMED),
        ("template<class T> __global__ void __launch_bounds__(128, 2) solve(T *a) {}", "solve"),
        ('extern "C" __global__ void solve(int *a);\n', "solve"),
        ("static void run(void (*kernel)(int), int x) { kernel(x); }", UNNAMED),
        ("int kernel = 4; __global__ void solve(int a) {}", "solve"),
        ("kernel void solve(", UNNAMED),
    ],
)
def test_a_kernel_is_named_as_real_programs_write_it(source: str, name: str) -> None:
    """Attributes, macros for qualifiers and names, comments and templates do not hide a kernel's name."""
    assert program_name(source.encode()) == name


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"__kernel void show(int x) {}", ["show"]),
        (b"kernel\nvoid  show (int x) {}", ["show"]),
        (b"kernel __attribute__((reqd_work_group_size(1, 1, 1))) void show(int x) {}", ["show"]),
        (b"kernel void __attribute__((vec_type_hint(int))) show(int x) {}", ["show"]),
        (
            b"__kernel __attribute__((vec_type_hint(float4))) __attribute__((a(8, 8), b(1))) void show() {}",
            ["show"],
        ),
        (b"kernel void a() {} kernel void b() {} kernel void c() {}", ["a", "b", "c"]),
        (b"kernel void a(); kernel void a() {}", ["a"]),
        (b"void show() {} int mykernel void_(", []),
        (b"kernel void a() {} // kernel void b() {}\n#define K kernel\nK void c() {}", ["a", "c"]),
        (b"__global__ void a(int x); __device__ int b(); __global__ void c() {}", ["a", "c"]),
    ],
)
def test_all_kernels_are_found(source: bytes, expected: list[str]) -> None:
    """Kernels are found in every spelling, with attributes on either side, each once."""
    assert list(kernel_names(source)) == expected


def test_other_uses_of_the_word_hide_no_kernel() -> None:
    """An array that is called ``kernel``, as in filters of images, is used before the kernel is declared."""
    use = b"float weigh(global float *kernel) { return kernel[0] + kernel[1]; }\n"
    assert list(kernel_names(use * 200 + b"kernel void blur(int x) {}")) == ["blur"]


def test_many_kernels_are_found_and_bounded() -> None:
    """A generated source of thousands gives the first thousand, and a name is cut."""
    source = b"".join(b"kernel void k%d(global int *a) { a[0] = 1; }\n" % number for number in range(3000))
    assert list(kernel_names(source)) == [f"k{number}" for number in range(1000)]
    assert next(kernel_names(b"kernel void " + b"k" * 5000 + b"() {}")) == "k" * 512
