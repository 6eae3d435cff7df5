"""The places of the shader caches of desktop programs: rows of ``systems``."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.caches import places
from gpucache.caches.places import ANY_BINARY, WINDOWS, Home, Place, Places, Var, cached

_LOOKED_AT = 1000
"""The number of directories that are examined for programs built on Chromium."""
_SHOWING = ("GPUCache", "Default/GPUCache", "DawnCache", "ShaderCache", "GPUPersistentCache")
_CHROME = "AppData/Local/Google/Chrome/User Data" if WINDOWS else ".config/google-chrome"


class DarktablePlaces(Places):
    name = "darktable"
    title = "darktable kernel cache"
    owner = "darktable"
    unseen = ANY_BINARY
    place = Place(
        cached("darktable", expanded=True),
        remedy="set XDG_CACHE_HOME, or start darktable with --cachedir",
        also=(Home(".var/app/org.darktable.Darktable/cache/darktable"),),  # as Flatpak sets XDG_CACHE_HOME
        lacking="XDG_CACHE_HOME moves every cache that follows it; --cachedir moves darktable's alone",
    )


class CyclesPlaces(Places):
    name = "cycles"
    title = "Cycles kernel cache"
    owner = "Cycles"
    unseen = ANY_BINARY
    place = Place(cached("cycles/kernels", expanded=True))


class DxvkPlaces(Places):
    name = "dxvk"
    title = "DXVK shader cache"
    owner = "DXVK"
    place = Place(
        (
            Var("DXVK_SHADER_CACHE_PATH"),
            Var("LOCALAPPDATA" if WINDOWS else "XDG_CACHE_HOME", "dxvk"),
            Home(".cache/dxvk"),
        ),
        off={"DXVK_SHADER_CACHE": ("0",)},
    )
    tracing = {"DXVK_LOG_LEVEL": "debug"}


class VulkanPlaces(Places):
    name = "vulkan"
    title = "Vulkan pipeline caches"
    owner = "a Vulkan program"
    place = Place(
        cached("gtk-4.0/vulkan-pipeline-cache"),
        lacking="XDG_CACHE_HOME moves every cache that follows it; programs keep pipelines where they like",
    )

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        for location in super().found(environ):
            yield location
            blender = Path(location.root).parents[1] / "blender" / "vk-pipeline-cache"
            if places.is_folder(blender):
                found = tuple(cls.at_place(blender))
                yield location._replace(root=str(blender), enabled=True, problems=found)


class ChromiumPlaces(Places):
    name = "chromium"
    title = "shader caches of Chromium and Electron"
    owner = "Chromium"
    unseen = "a changed byte in a shader"
    place = Place(
        (Home(_CHROME, expanded=True),),
        remedy="start the program with --user-data-dir",
        also=(
            Var("CHROME_USER_DATA_DIR"),
            Home("snap/chromium/common/chromium"),
            Home(".var/app/com.google.Chrome/config/google-chrome"),
            Home(".var/app/org.chromium.Chromium/config/chromium"),
            Home(".config/BraveSoftware/Brave-Browser"),
            Home("snap/brave/current/.config/BraveSoftware/Brave-Browser"),
            Home(".var/app/com.brave.Browser/config/BraveSoftware/Brave-Browser"),
            Home(".var/app/com.microsoft.Edge/config/microsoft-edge"),
        ),
        lacking=(
            "Chromium keeps its caches in its profile, which --user-data-dir moves; so do other browsers and "
            "Electron programs, each in a folder next to Chrome's"
        ),
    )

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        told = list(super().found(environ))
        yield from told
        seen = {location.root for location in told}
        beside = Path(told[0].root).parent if told and not WINDOWS else None
        for folder in _folders(beside) if beside else ():
            if str(folder) not in seen and any(places.is_folder(folder / one) for one in _SHOWING):
                found = tuple(cls.at_place(folder))
                yield Location(cls.name, str(folder), "default", enabled=True, problems=found)


def _folders(above: Path) -> list[Path]:
    """The first entries of a directory; none if it cannot be read."""
    with suppress(OSError, ValueError):
        return sorted(islice(above.iterdir(), _LOOKED_AT))
    return []


class SteamPlaces(Places):
    name = "steam"
    title = "Steam shader pre-caches"
    owner = "Steam"
    place = Place(
        (Home(".local/share/Steam/steamapps/shadercache"),),
        remedy="move the game to another Steam library",
        also=(
            Home(".steam/debian-installation/steamapps/shadercache"),
            Home(".var/app/com.valvesoftware.Steam/.local/share/Steam/steamapps/shadercache"),
            Home("snap/steam/common/.local/share/Steam/steamapps/shadercache"),
        ),
        lacking="Steam keeps shaders in each of its libraries, which no variable moves",
    )
