"""Orders of a food-delivery service, and what the service wants to know of them. Plain Spark."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CITIES = ("Berlin", "Hamburg", "Leipzig", "Munich", "Vienna", "Zurich")
FIRST_ORDER = "2026-01-01 18:00:00"
ORDER_SCHEMA = "order_id long, city string, restaurant int, amount_cents int, ordered_at timestamp"


def orders(spark: "SparkSession", first: int, end: int) -> "DataFrame":
    """Orders number `first` to `end`: a key and a JSON value each, a thousand a second of their own clock."""
    cities = ", ".join(f"'{city}'" for city in CITIES)
    return spark.range(first, end).selectExpr(
        "cast(pmod(hash(id), 500) as string) as key",
        f"""to_json(named_struct(
              'order_id', id,
              'city', element_at(array({cities}), cast(pmod(hash(id, 1), {len(CITIES)}) as int) + 1),
              'restaurant', pmod(hash(id), 500),
              'amount_cents', 900 + pmod(hash(id, 2), 4000),
              'ordered_at', timestamp_millis(unix_millis(timestamp'{FIRST_ORDER}') + id)
            )) as value""",
    )


def parsed(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql.functions import col, from_json

    return rows.select(from_json(col("value").cast("string"), ORDER_SCHEMA).alias("order")).select("order.*")


def per_minute(rows: "DataFrame") -> "DataFrame":
    """Orders and turnover by city and minute."""
    from pyspark.sql.functions import col, count, lit, sum, window

    grouped = parsed(rows).groupBy(window("ordered_at", "1 minute"), "city")
    totals = grouped.agg(count(lit(1)).alias("orders"), sum("amount_cents").alias("amount_cents"))
    return totals.select(col("window.start").alias("minute"), "city", "orders", "amount_cents")


def as_records(totals: "DataFrame") -> "DataFrame":
    """Keyed by minute and city, so that the last record of a key is its present value."""
    from pyspark.sql.functions import concat_ws, struct, to_json

    return totals.select(
        concat_ws(" ", totals.minute, totals.city).alias("key"), to_json(struct(*totals.columns)).alias("value")
    )


def latest(rows: "DataFrame") -> "DataFrame":
    """What `as_records` wrote, the last of each key."""
    from pyspark.sql.functions import col, from_json, max_by, struct

    schema = "minute timestamp, city string, orders long, amount_cents long"
    newest = rows.groupBy("key").agg(max_by(col("value"), struct("timestamp", "offset")).alias("value"))
    return newest.select(from_json(col("value").cast("string"), schema).alias("total")).select("total.*")
