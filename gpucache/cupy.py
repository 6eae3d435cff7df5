"""``gpucache.cupy.install()``: our root as cache of the kernels that CuPy 14 compiles. Loads CuPy.

A kernel's entry is checked at each hit; a damaged one is a miss. CuPy names kernels by a digest of source,
options, architecture and compiler, which it does not show, so an entry shows only source and bytes.
"""

from cupy.cuda import compiler
from cupy.cuda._compiler_cache import KernelCacheBackend

from gpucache.keys import cache_key, digest
from gpucache.library import opaque, process
from gpucache.model import KeyField

OWNER = opaque.Owner(
    "CuPy",
    "CuPy",
    "CuPy's key is opaque: it shows no options, architecture or compiler",
    ("libnvrtc", "libnvrtc-builtins"),
)
_DIGITS = 16


class KernelCache(KernelCacheBackend):  # type: ignore[misc] # CuPy publishes no types
    """A backend for CuPy's kernel cache. Never fails because of the cache."""

    def load(self, name: str) -> bytes | None:
        """The payload of a kernel, or None; raises CacheMissError if a hit is required."""
        found = opaque.find(process.stores(), OWNER, cache_key(_fields(name)))
        return None if found is None else found.payload

    def save(self, name: str, cubin: bytes, source: str) -> None:
        """Keep the payload of a kernel."""
        text = source.encode(errors="surrogatepass")
        described = [("source", digest(text)[:_DIGITS])]
        program = opaque.program_name(text)
        opaque.keep(process.stores(), OWNER, opaque.binary(_fields(name), program, cubin, described))


def install() -> None:
    """Make this cache CuPy's, for all that is compiled from now on in this process."""
    compiler._set_kernel_cache_backend(KernelCache())


def _fields(name: str) -> tuple[KeyField, ...]:
    return opaque.key_fields(OWNER, name)
