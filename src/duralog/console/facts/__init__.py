"""The facts that pages show: immutable values, from any source.

Numbers are plain and exact; words for people are made by the pages. Unknown values are None, never 0: a
broker does not show segments, a directory does not show whether the members of a group are alive. Names, keys, values
and header names come from a disk or a network: they are untrusted, and are escaped where they are shown.

| here | what |
|---|---|
| `overview` | topics, partitions and groups at one refresh |
| `partitions` | one partition, its segments, what reading one finds |
| `records` | records, pages of them, searches |
| `runs` | compactions and checks |
| `health` | the quarantine and the cleaner's list |
"""
