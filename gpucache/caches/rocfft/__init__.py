"""rocFFT's runtime-compilation cache: see ``format``."""
