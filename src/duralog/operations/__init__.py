"""What people do with a log directory, one function for each: compact it, explain a compaction, check it, repair it.

A use case takes a request and returns a report, both values. It reports progress by one protocol
(`duralog.config.progress`), prints nothing and asks nothing. It runs on threads of this process or on Spark, whichever
it is given (`duralog.operations.workers`). The command line and the console turn their input into requests, and show
reports.
"""
