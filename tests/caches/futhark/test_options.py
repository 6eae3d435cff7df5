"""The option lists that enter the key."""

import pytest

from gpucache.caches.futhark.options import (
    CudaSettings,
    HipSettings,
    OpenclSettings,
    cuda_architecture,
    cuda_options,
    hip_options,
    key_of,
    opencl_options,
)
from gpucache.errors import OptionError

_TUNING = (("main_tile_size_6", 1, 16),)
_MACROS = (("segmap_tblock_size_4", 256),)
_TR = ["-DTR_BLOCK_DIM=16", "-DTR_TILE_DIM=32", "-DTR_ELEMS_PER_THREAD=8"]


def test_cuda_options_in_order() -> None:
    """Architecture, warnings, sizes, macros, parameters, widths, folders, the user's own, the last three."""
    settings = CudaSettings((8, 0), macros=_MACROS, tuning=_TUNING, extra=("--use_fast_math",))
    assert list(cuda_options(settings, {})) == [
        "-arch",
        "compute_80",
        "-default-device",
        "--disable-warnings",
        "-Dmax_thread_block_size=1024",
        "-Dmax_shared_memory=165888",
        "-Dmax_registers=65536",
        "-Dsegmap_tblock_size_4=256",
        "-Dset_main_tile_size_6=1",
        "-Dval_main_tile_size_6=16",
        "-DLOCKSTEP_WIDTH=32",
        "-DMAX_THREADS_PER_BLOCK=1024",
        "-I/usr/local/cuda/include",
        "-I/usr/include",
        "--use_fast_math",
        *_TR,
    ]


def test_cuda_folders_of_the_environment_come_first() -> None:
    """Each variable that is set gives a folder, in Futhark's order, even an empty one."""
    environ = {"CUDA_PATH": "", "CUDA_HOME": "/opt/cuda", "CUDA_ROOT": "/r"}
    folders = [option for option in cuda_options(CudaSettings((9, 0)), environ) if option.startswith("-I")]
    assert folders[:3] == ["-I/opt/cuda/include", "-I/r/include", "-I/include"]


def test_debugging_takes_the_place_of_quiet() -> None:
    """With debugging there are two options instead of --disable-warnings."""
    options = cuda_options(CudaSettings((9, 0), debugging=True), {})
    assert options[2:5] == ("-default-device", "-G", "-lineinfo")
    assert "--disable-warnings" not in options


@pytest.mark.parametrize("own", ["-arch=sm_75", "-arch", "--gpu-architecture=compute_75"])
def test_an_architecture_of_the_user_replaces_futharks(own: str) -> None:
    """Futhark leaves its two strings out then."""
    options = cuda_options(CudaSettings((9, 0), extra=(own,)), {})
    assert options[0] == "-default-device"


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


def test_numbers_are_written_as_c_writes_them() -> None:
    """A macro is a size, so a negative one is huge; a parameter is cast to int."""
    settings = CudaSettings((9, 0), macros=(("m", -1),), tuning=(("p", 0, 2**31 + 5),))
    options = cuda_options(settings, {})
    assert {"-Dm=18446744073709551615", "-Dval_p=-2147483643"} <= set(options)


@pytest.mark.parametrize(("capability", "size"), [((9, 0), 231424), ((8, 9), 100352), ((7, 5), 65536)])
def test_shared_memory_of_a_capability(capability: tuple[int, int], size: int) -> None:
    """What a block can opt in to, less what the driver reserves."""
    assert f"-Dmax_shared_memory={size}" in cuda_options(CudaSettings(capability), {})


def test_hip_options_in_order() -> None:
    """One option for the architecture, no fixed folders."""
    settings = HipSettings("gfx90a:sramecc+:xnack-", 65536, tuning=_TUNING, extra=("-O3",))
    assert list(hip_options(settings, {"HIP_PATH": "/opt/rocm"})) == [
        "--gpu-architecture=gfx90a:sramecc+:xnack-",
        "-Dmax_thread_block_size=1024",
        "-Dmax_shared_memory=65536",
        "-Dmax_registers=65536",
        "-Dset_main_tile_size_6=1",
        "-Dval_main_tile_size_6=16",
        "-DLOCKSTEP_WIDTH=64",
        "-DMAX_THREADS_PER_BLOCK=1024",
        "-I/opt/rocm/include",
        "-O3",
        *_TR,
    ]


def test_hip_debugging_and_own_architecture() -> None:
    """Debugging adds two options, an architecture of the user replaces Futhark's."""
    settings = HipSettings("gfx90a", 65536, debugging=True, extra=("--gpu-architecture=gfx942",))
    assert hip_options(settings, {})[:2] == ("-G", "-lineinfo")


def test_opencl_options_are_one_string() -> None:
    """Single spaces, parameters, the user's own, macros, and no space at the end."""
    settings = OpenclSettings(1024, 49136, 65536, 32, _MACROS, _TUNING, ("-cl-mad-enable",))
    assert opencl_options(settings) == (
        "-DLOCKSTEP_WIDTH=32 -Dmax_thread_block_size=1024 -Dmax_shared_memory=49136 -Dmax_registers=65536 "
        "-Dset_main_tile_size_6=1 -Dval_main_tile_size_6=16 -cl-mad-enable -Dsegmap_tblock_size_4=256 "
        "-DTR_BLOCK_DIM=16 -DTR_TILE_DIM=32 -DTR_ELEMS_PER_THREAD=8 -cl-fp32-correctly-rounded-divide-sqrt"
    )


@pytest.mark.parametrize(
    ("platform", "device", "extra", "expected"),
    [
        ("rusticl", "Apple M1", (), "-DLOCKSTEP_WIDTH=32 -cl-std=CL2.0 -Dmax"),
        ("rusticl", "Apple M1", ("-cl-std=CL3.0",), "-DLOCKSTEP_WIDTH=32 -Dmax"),
        ("rusticl", "AMD", (), "-DLOCKSTEP_WIDTH=32 -Dmax"),
        ("Oclgrind", "", (), "-DTR_ELEMS_PER_THREAD=8 -DEMULATE_F16 -cl-fp32"),
    ],
)
def test_opencl_options_of_a_platform(
    platform: str, device: str, extra: tuple[str, ...], expected: str
) -> None:
    """Two platforms get an option of their own."""
    settings = OpenclSettings(1, 2, 3, 32, extra=extra, platform_name=platform, device_name=device)
    assert expected in opencl_options(settings)


def test_two_variables_of_one_folder_cancel() -> None:
    """The key is that of a start without either."""
    settings = CudaSettings((8, 0))
    both = cuda_options(settings, {"CUDA_HOME": "/opt/cuda", "CUDA_PATH": "/opt/cuda"})
    assert key_of(both, b"k") == key_of(cuda_options(settings, {}), b"k")
