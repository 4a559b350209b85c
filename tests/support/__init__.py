"""What tests and benchmarks share: Java, its jars, and a real Apache Kafka to stand beside pylog."""
