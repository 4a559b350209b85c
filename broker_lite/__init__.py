"""The broker: Kafka's wire protocol on top of `pylog.storage`."""
