"""TorchInductor's cache: compiled graphs, generated code and what tuning found.

Source: PyTorch 2.15, torch/_inductor/runtime/cache_dir_utils.py and codecache.py.
"""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.places import Place, Var


class Inductor(OpaqueFormat):
    """What ``torch.compile`` leaves."""

    name = "inductor"
    title = "TorchInductor cache"
    owner = "TorchInductor"
    place = Place(
        (Var("TORCHINDUCTOR_CACHE_DIR"),),
        move="set TORCHINDUCTOR_CACHE_DIR",
        nowhere="TorchInductor keeps it in the folder for temporary files until TORCHINDUCTOR_CACHE_DIR "
        "names another; set it",
        off={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": ("1",)},
        opt_in=True,
    )
    signs = ("fxgraph/.{2}/f[a-z2-7]{51}", "aotautograd/.{2}/a[a-z2-7]{51}", r"[a-z2-7]{2}/c[a-z2-7]{51}\.py")


SYSTEM = ForeignSystem(Inductor)
