"""The parts of the job `compact`."""
