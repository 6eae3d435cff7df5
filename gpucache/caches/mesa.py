"""Mesa's shader cache: of its OpenGL and Vulkan drivers, and of rusticl.

Source: Mesa, docs/envvars.rst and src/util/disk_cache_os.c. A place that the variable names has to be there.
The database notes in its index when an entry was last used, so that a hit writes it anew.
"""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.places import Home, Place, Var


class Mesa(OpaqueFormat):
    """What Mesa's compilers made, in whichever of its three forms."""

    name = "mesa"
    title = "Mesa shader cache"
    owner = "Mesa"
    driver = True
    place = Place(
        (
            Var("MESA_SHADER_CACHE_DIR"),
            Var("XDG_CACHE_HOME", "mesa_shader_cache"),
            Home(".cache/mesa_shader_cache"),
        ),
        move="set MESA_SHADER_CACHE_DIR to a folder that is there",
        nowhere="Mesa keeps nothing without a home folder; set MESA_SHADER_CACHE_DIR",
        off={"MESA_SHADER_CACHE_DISABLE": ("1", "true")},
        opt_in=True,
    )
    rewritten = r"(?:.+/)?mesa_cache\.idx"
    signs = (
        "[0-9a-f]{2}/[0-9a-f]{62}",
        "mesa_shader_cache(?:_db|_sf)?/.+",
        r"(?:part[0-9]+|mesa_shader_cache_db)/mesa_cache\.db",
        r"[0-9a-f]+/.+/foz_cache\.foz",
    )


SYSTEM = ForeignSystem(Mesa)
