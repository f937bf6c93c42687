"""Loading a log after a clean stop or a crash (Kafka's `LogLoader`), and the quarantine for damaged bytes."""
