"""Database change subscription: every change of a database in a compacted topic, a cache and a search index from there.

`python -m examples.change_capture` shows it; `python -m examples.change_capture follow` is the capturing process.
"""
