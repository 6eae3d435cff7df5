"""Where NVIDIA's driver keeps its shaders, for tests."""

from tests.caches.opened import Environs

_PATH, _SIZE = "__GL_SHADER_DISK_CACHE_PATH", "__GL_SHADER_DISK_CACHE_SIZE"
_OLDER, _NEWER = ".nv/GLCache", ".cache/nvidia/GLCache"
PLACES: Environs = {
    "a folder that is not there": ({_PATH: "{tmp}/none", "HOME": "{tmp}"},),
    "by the variable": ({_PATH: "{tmp}", "HOME": "/nowhere"}, "GLCache"),
    "by the home": ({"HOME": "{tmp}"}, _NEWER),
    "the older place": ({"HOME": "{tmp}"}, _NEWER, _OLDER),
    "by XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "{tmp}"}, "nvidia/GLCache"),
    "the older place beside that": ({"XDG_CACHE_HOME": "{tmp}"}, "nvidia/GLCache", _OLDER),
    "of a size": ({"HOME": "{tmp}", _SIZE: "10737418240"},),
    "a size with a unit": ({"HOME": "{tmp}", _SIZE: "10G"},),
    "never cleaned up": ({"HOME": "{tmp}", _SIZE: "5", "__GL_SHADER_DISK_CACHE_SKIP_CLEANUP": "1"},),
    "turned off": ({"HOME": "{tmp}", "__GL_SHADER_DISK_CACHE": "0"}, _NEWER, _OLDER),
}
