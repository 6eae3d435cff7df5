"""Requests, stores and compilers as the tests of the engine have them."""

from tests.engine.conftest import compiler, layers, ready, store, tree

__all__ = ["compiler", "layers", "ready", "store", "tree"]
