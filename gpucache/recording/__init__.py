"""Recordings: the compiles of programs, kept in a directory so that ``warm`` can repeat them elsewhere.

A recording contains sources, so its directories have mode 0700 and its files 0600:

    <folder>/<instant>-<process>-*.jsonl  a file for each process that wrote, a line for each build
    <folder>/blobs/<SHA-256>              sources and headers, each once

Nothing in it is ever executed or imported, and every length in it is bounded.
"""
