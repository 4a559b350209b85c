"""What the broker tells of itself to those who watch it. Loaded only where somebody asked for it (`--metrics`).

`families` is the table of all that is told, `text` the format it is told in, `collect` looks it up, `requests` counts
and times requests, `lag` finds out how far groups are behind, `http` and `pages` serve it.
"""
