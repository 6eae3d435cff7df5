"""Requests, stores and compilers as the tests of the engine have them."""

from tests.engine.conftest import compiler, ready, store, stores, tree

__all__ = ["compiler", "ready", "store", "stores", "tree"]
