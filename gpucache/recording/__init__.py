"""Recordings: what programs had compiled, kept in a folder so that ``warm`` builds it elsewhere.

A recording holds sources, so its folders have mode 0700 and its files 0600:

    <folder>/<instant>-<process>-*.jsonl  a file for each process that wrote, a line for each build
    <folder>/blobs/<SHA-256>              sources and headers, each once

Nothing of it is ever executed or imported, and every length in it is bounded.
"""
