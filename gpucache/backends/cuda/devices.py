"""The GPUs that a CUDA driver shows, and the architectures that NVRTC builds for without a GPU.

A machine without a driver still has the architectures. The driver is loaded when a function needs it.
"""

from typing import Any

from gpucache.backends.cuda import nvrtc
from gpucache.errors import CompileError, GpucacheError, NoDeviceError
from gpucache.model import Artifact, ArtifactKind, Device, Target

NO_DRIVER = "no CUDA driver is installed; programs can be built for named architectures, but not loaded"


def probe() -> list[Device]:
    """The GPUs, then every architecture of NVRTC that no GPU of this machine has."""
    gpus = _gpus()
    here = {gpu.target for gpu in gpus}
    try:
        return [*gpus, *(row for row in _architectures() if row.target not in here)]
    except GpucacheError as error:
        return [*gpus, _broken("NVRTC", str(error))]


def load(artifact: Artifact, target: Target) -> tuple[str, ...]:
    """Load on a GPU that runs the target and name its kernels; raises CompileError or NoDeviceError."""
    driver = find_driver()
    device = enter(driver, target)
    try:
        library = load_library(driver, artifact)
        names = kernels(driver, library)
        driver.cuLibraryUnload(library)
        return names
    finally:
        driver.cuDevicePrimaryCtxRelease(device)


def enter(driver: Any, target: Target) -> Any:
    """Make the primary context of a fitting GPU current, and return its device."""
    device = _device_for(driver, target)
    context = _result(driver, driver.cuDevicePrimaryCtxRetain(device))
    _result(driver, driver.cuCtxSetCurrent(context))
    return device


def load_library(driver: Any, artifact: Artifact) -> Any:
    """Load the artifact as a library of the driver; raises CompileError, NoDeviceError."""
    if artifact.kind in (ArtifactKind.LTOIR, ArtifactKind.OPTIXIR):
        raise NoDeviceError(
            "LTO-IR and OptiX-IR are linked before they are loaded, so they cannot be tried alone"
        )
    # The driver requires PTX to end in a zero byte.
    image = artifact.payload + (b"\0" if artifact.kind is ArtifactKind.PTX else b"")
    status, library = driver.cuLibraryLoadData(image, None, None, 0, None, None, 0)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CompileError(f"the driver rejected it ({status.name})")
    return library


def kernels(driver: Any, library: Any) -> tuple[str, ...]:
    """Create every kernel of a library; returns their names."""
    count = _result(driver, driver.cuLibraryGetKernelCount(library))
    found = _result(driver, driver.cuLibraryEnumerateKernels(count, library))
    return tuple(_result(driver, driver.cuKernelGetName(kernel)).decode() for kernel in found)


def _device_for(driver: Any, target: Target) -> Any:
    virtual = target.name.startswith("compute_")
    wanted = int("".join(character for character in target.name if character.isdigit()))
    for device, major, minor in _present(driver):
        number = major * 10 + minor
        if number == wanted or (virtual and number >= wanted):
            return device
    raise NoDeviceError(f"no GPU of this machine runs {target}")


def _present(driver: Any) -> list[tuple[Any, int, int]]:
    attribute = driver.CUdevice_attribute
    found = []
    for ordinal in range(_result(driver, driver.cuDeviceGetCount())):
        device = _result(driver, driver.cuDeviceGet(ordinal))
        major, minor = (
            _result(driver, driver.cuDeviceGetAttribute(which, device))
            for which in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        found.append((device, major, minor))
    return found


def _gpus() -> list[Device]:
    try:
        driver = find_driver()
        version = _result(driver, driver.cuDriverGetVersion())
        present = _present(driver)
    except NoDeviceError as error:
        return [_broken("CUDA driver", str(error))]
    rows: dict[Target, Device] = {}
    for device, major, minor in present:
        target = Target("cuda", f"sm_{major}{minor}")
        name = _result(driver, driver.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
        rows.setdefault(target, _gpu(target, name, f"{version // 1000}.{version % 1000 // 10}"))
    return list(rows.values())


def _gpu(target: Target, name: str, version: str) -> Device:
    try:
        toolchain = nvrtc.toolchain(target)
    except GpucacheError as error:
        return Device(target, "cuda", name, version, available=False, detail=str(error))
    detail = f"GPU, CUDA {version}"
    return Device(target, "cuda", name, version, True, detail, toolchain, files=_files())


def _architectures() -> list[Device]:
    major, minor = nvrtc.version()
    detail = f"NVRTC {major}.{minor} needs no device to build for it"
    found = []
    for kind, word in (("sm", "architecture"), ("compute", "PTX for")):
        for number in nvrtc.architectures():
            target = Target("cuda", f"{kind}_{number}")
            toolchain, name = nvrtc.toolchain(target), f"{word} {number}"
            found.append(Device(target, "cuda", name, "", True, detail, toolchain, False, _files()))
    return found


def _files() -> tuple[str, ...]:
    return tuple(map(str, nvrtc.installation().files))


def _broken(name: str, detail: str) -> Device:
    return Device(None, "cuda", name, "", available=False, detail=detail, present=False)


def find_driver() -> Any:
    """``cuda.bindings.driver``, initialised; raises NoDeviceError with a plain sentence."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise NoDeviceError(f"cuda-python does not load ({error}); reinstall it") from None
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError:  # raised by the bindings when libcuda does not load
        raise NoDeviceError(NO_DRIVER) from None
    if status != driver.CUresult.CUDA_SUCCESS:
        raise NoDeviceError(f"the CUDA driver does not start ({status.name})")
    return driver


def _result(driver: Any, answer: tuple[Any, ...]) -> Any:
    status, *results = answer
    if status != driver.CUresult.CUDA_SUCCESS:
        raise NoDeviceError(f"the CUDA driver returned {status.name}")
    return results[0] if results else None
