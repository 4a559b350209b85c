"""A food-delivery service on pylog: `python -m pylog.demo`, or `make demo` in a checkout."""
