"""The records of Kafka's own topics, and the messages that they are made of."""
