"""Unmodified commands: this process serves the requests to their GPU compilers.

A small library inside the command asks over a socket; all decisions are made in this package.
"""
