"""The option list that Futhark gives NVRTC, and what enters the key of it."""

import pytest

from gpucache.caches.futhark.export import cuda_architecture, cuda_options
from gpucache.caches.futhark.format import key_of
from gpucache.errors import OptionError


def test_cuda_options_in_order() -> None:
    """Architecture, warnings, sizes, widths, directories, the user's own, the last three."""
    assert list(cuda_options((8, 0), ("--use_fast_math",), {})) == [
        "-arch",
        "compute_80",
        "-default-device",
        "--disable-warnings",
        "-Dmax_thread_block_size=1024",
        "-Dmax_shared_memory=165888",
        "-Dmax_registers=65536",
        "-DLOCKSTEP_WIDTH=32",
        "-DMAX_THREADS_PER_BLOCK=1024",
        "-I/usr/local/cuda/include",
        "-I/usr/include",
        "--use_fast_math",
        "-DTR_BLOCK_DIM=16",
        "-DTR_TILE_DIM=32",
        "-DTR_ELEMS_PER_THREAD=8",
    ]


def test_cuda_folders_of_the_environment_come_first() -> None:
    """Each variable that is set gives a folder, in Futhark's order, even an empty one; two alike cancel."""
    environ = {"CUDA_PATH": "", "CUDA_HOME": "/opt/cuda", "CUDA_ROOT": "/r"}
    folders = [option for option in cuda_options((9, 0), (), environ) if option.startswith("-I")]
    assert folders[:3] == ["-I/opt/cuda/include", "-I/r/include", "-I/include"]
    both = cuda_options((8, 0), (), {"CUDA_HOME": "/opt/cuda", "CUDA_PATH": "/opt/cuda"})
    assert key_of(both, b"k") == key_of(cuda_options((8, 0), (), {}), b"k")


@pytest.mark.parametrize("own", ["-arch=sm_75", "-arch", "--gpu-architecture=compute_75"])
def test_an_architecture_of_the_user_replaces_futharks(own: str) -> None:
    """Futhark leaves its two strings out then."""
    assert cuda_options((9, 0), (own,), {})[0] == "-default-device"


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((3, 0), "compute_30"),
        ((7, 5), "compute_75"),
        ((8, 6), "compute_80"),
        ((8, 9), "compute_80"),
        ((9, 0), "compute_90"),
        ((10, 3), "compute_101"),
        ((11, 0), "compute_101"),
        ((12, 1), "compute_121"),
        ((13, 0), "compute_121"),
    ],
)
def test_the_architecture_is_the_last_of_the_table(capability: tuple[int, int], expected: str) -> None:
    """A capability that the table lacks gets the nearest one below."""
    assert cuda_architecture(capability) == expected


def test_a_capability_below_the_table_is_refused() -> None:
    """Futhark panics for it."""
    with pytest.raises(OptionError, match=r"2\.1; the lowest is 3\.0"):
        cuda_architecture((2, 1))


@pytest.mark.parametrize(
    ("capability", "size"), [((7, 2), 49152), ((9, 0), 231424), ((8, 9), 100352), ((7, 5), 65536)]
)
def test_shared_memory_of_a_capability(capability: tuple[int, int], size: int) -> None:
    """The option is a block's largest opt-in shared memory without the part that the driver reserves."""
    assert f"-Dmax_shared_memory={size}" in cuda_options(capability, (), {})
