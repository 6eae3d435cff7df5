"""A value that a kernel reads, and that Triton's key does not have."""

# mypy: ignore-errors

import os

import triton.language as tl

VALUE = tl.constexpr(int(os.environ.get("HIDDEN", "3")))
