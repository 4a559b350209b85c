"""The log on disk. Knows no sockets, no wire codes, no Spark."""
