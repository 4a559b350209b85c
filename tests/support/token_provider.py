"""A token provider as users write them: importable where Spark's Python processes run."""

from collections.abc import Mapping


def token(options: Mapping[str, str]) -> str:
    return f"token-of-{options['who']}"
