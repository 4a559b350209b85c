"""What the data source refuses or finds missing. Arguments are kept as given: errors travel between processes."""


class SchemaError(ValueError):
    """A column that is missing, of a wrong type, or not there to be read."""


class NullTopic(ValueError):
    """A row that does not say where it goes."""

    def __init__(self) -> None:
        super().__init__("a row's topic is null: give every row a topic, or name one for all with the option topic")


class RecordsLate(Exception):
    """Records that are in the log did not come in time: (topic, partition, offset, milliseconds)."""

    def __str__(self) -> str:
        topic, partition, offset, waited_ms = self.args
        return (
            f"{topic}-{partition}: offset {offset} did not come in {waited_ms} ms, though the log has it: the broker "
            "is slow, or lags behind. kafkaConsumer.pollTimeoutMs says how long a task waits"
        )


class DataLoss(Exception):
    """Records that were to be read are not there any more; raised unless failOnDataLoss is false."""

    def __str__(self) -> str:
        return f"{self.args[0]}. To go on with the earliest that is there, set failOnDataLoss to false"
