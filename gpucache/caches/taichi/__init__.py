"""Taichi's offline cache: ``format`` is what the engine asks, ``index`` the rows that make files count."""
