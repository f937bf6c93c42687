"""The whole story on one machine: a change stream is stored, streamed, compacted, taken as a snapshot, and verified.

`python -m examples.story` runs it; `make run` does that.
"""
