"""What the verbs answer: a file a verb with its values, their summary, and how people read them.

Owns what a verb can answer, its JSON documents and its words. Must not know how an answer was found.
"""
