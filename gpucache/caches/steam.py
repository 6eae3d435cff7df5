"""Steam's shader pre-caches: a directory for each game, whose files are opaque.

Source: Fossilize of 2026, ``fossilize_db.cpp``, and published listings of such directories; no cache that
Steam wrote was available. ``APPID/fozpipelinesv6/`` has Fossilize's archives (``*.foz``), which Steam
downloads and into which games write the pipelines that they create; ``nvidiav1`` and
``mesa_shader_cache_sf`` are the drivers' own caches for that game.
"""

from gpucache.caches.desktop_places import SteamPlaces
from gpucache.caches.opaque import OpaqueFormat


class Steam(SteamPlaces, OpaqueFormat):
    """The pipelines of games, before and after the driver compiled them."""

    signs = (r"\d+/(?:fozpipelinesv\d+|mesa_shader_cache_sf|nvidiav\d+)",)
