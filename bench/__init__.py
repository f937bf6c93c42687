"""How fast duralog is, next to Apache Kafka and the Python clients, on the same bytes in the same run."""
