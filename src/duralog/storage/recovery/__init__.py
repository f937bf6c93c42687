"""What is done after a crash, and with bytes that do not belong to a log."""
