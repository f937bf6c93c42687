"""JSON as Kafka Connect writes it: types of its schemas, payloads, and the change events of Debezium."""
