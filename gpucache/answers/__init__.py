"""The results of the verbs: one file per verb with its values, their summary, and their text for people.

Owns the possible results of a verb, its JSON documents (``document``) and words. Must not know how a result
was found. Where programs or starting processes wait for the values, the words are in a separate module.
"""
