"""What the verbs answer: a file a verb with its values, their summary, and how people read them.

Owns what a verb can answer, its JSON documents (``document``) and its words. Must not know how an answer was
found. Where programs or the processes of starts wait for the values, the words stand in a module beside them.
"""
