"""OptiX's database and its places, for tests."""

from tests.caches.opened import Cases, Environs, together, write

_MAXSIZE = "OPTIX_CACHE_MAXSIZE"
CASES: Cases = {
    "alone: a database, and what SQLite keeps beside it": together(
        *(write(f"optix7cache.db{ending}", b"SQLite format 3\0") for ending in ("", "-wal", "-shm"))
    )
}
PLACES: Environs = {
    "of a user": ({"USER": "alice", "TMPDIR": "/elsewhere"},),
    "by the variable": ({"OPTIX_CACHE_PATH": "{tmp}"}, "optix"),
    "of a size": ({"OPTIX_CACHE_PATH": "{tmp}", _MAXSIZE: "1000000"}, "optix"),
    "turned off": ({"OPTIX_CACHE_PATH": "{tmp}", _MAXSIZE: "0"}, "optix"),
}
