"""The use cases of a log directory, one function for each: compact, explain a compaction, verify, repair, ...

A use case takes a request and returns a report, both values. It reports progress by one protocol
(`duralog.config.progress`), prints nothing and asks nothing. It runs on threads of this process or on Spark, as
requested (`duralog.operations.workers`). The command line and the console turn their input into requests, and show
reports.
"""
