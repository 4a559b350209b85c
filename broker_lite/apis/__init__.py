"""One module an API; `api_table` gathers them."""
