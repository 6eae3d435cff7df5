"""The tag of a private root, by which backups leave it out. Imports nothing, as each end of a run waits."""

TAG_NAME = "CACHEDIR.TAG"
TAG_TEXT = b"""Signature: 8a477f597d28d172789f06886806bc55
# This file marks a cache made by gpucache, which backups may leave out.
# For information see https://bford.info/cachedir/
"""
