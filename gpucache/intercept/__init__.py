"""Commands that nobody changed: what their GPU compilers are asked for is answered by this process.

A small library inside the command asks over a socket; everything that is decided is decided here.
"""
