"""What the pages show: values that nobody changes any more, whatever they were read from.

Numbers are plain and exact; words for people are made by the pages. What a source cannot know is None, never 0: a
broker tells no segments, a directory does not tell whether a group's members are alive. Names, keys, values and header
names come from a disk or a network: they are untrusted, and whoever shows them escapes them.

| here | what |
|---|---|
| `overview` | topics, partitions and groups at one look |
| `partitions` | one partition, its segments, what reading one tells |
| `records` | records, pages of them, searches |
| `runs` | compactions and checks |
| `health` | the quarantine and the cleaner's list |
"""
