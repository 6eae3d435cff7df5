"""Steam's directories of a game's shaders, for tests."""

from tests.caches.opened import Cases, Environs, write

CASES: Cases = {
    "alone: an archive": write("440/fozpipelinesv6/steam_pipeline_cache.foz", b"\x81FOSSILIZEDB\0\0\0\6")
}
PLACES: Environs = {"below the home": ({"HOME": "{tmp}"},)}
