"""pylog: a Kafka-compatible commit log in Python, made for Spark.

    with pylog.Broker() as broker:
        spark = pylog.spark_session()  # or, with a session that is there: pylog.register(spark)
        df.write.format("pylog").option("kafka.bootstrap.servers", broker.bootstrap_servers)…

Names are loaded when they are used: a broker process never imports numba, pyarrow or pyspark.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Broker", "Producer", "__version__", "register", "spark_session"]

if TYPE_CHECKING:
    from pylog.connector.producer import Producer
    from pylog.connector.spark import register
    from pylog.connector.spark.session import spark_session
    from pylog.embedded import Broker


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from pylog.embedded import Broker

        return Broker
    if name == "Producer":
        from pylog.connector.producer import Producer

        return Producer
    if name == "register":
        from pylog.connector.spark import register

        return register
    if name == "spark_session":
        from pylog.connector.spark.session import spark_session

        return spark_session
    raise AttributeError(f"module 'pylog' has no attribute '{name}'")
