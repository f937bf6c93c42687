"""The parts of the job `snapshot`."""
