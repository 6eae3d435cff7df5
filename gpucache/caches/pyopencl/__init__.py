"""PyOpenCL's compiler cache: see ``format``."""
