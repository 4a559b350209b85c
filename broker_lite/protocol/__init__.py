"""Bytes <-> messages, error codes, framing. No I/O; shared by the broker and the connector."""
