"""The other side of the wire: connections, metadata, offsets, fetched ranges and batches sent. No Arrow, no Spark."""
