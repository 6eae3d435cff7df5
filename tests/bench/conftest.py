"""Requests, stores and compilers of the engine's tests."""

from tests.engine.conftest import compiler, ready, stores, tree

__all__ = ["compiler", "ready", "stores", "tree"]
