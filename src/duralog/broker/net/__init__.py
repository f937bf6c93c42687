"""Sockets, the event loop, worker threads and timers."""
