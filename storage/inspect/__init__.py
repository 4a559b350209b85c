"""Looking at the files of a log without changing them: `dump` shows what is there, `verify` says what is wrong.

Nothing here writes, locks or trusts: every length is checked against the file before it is used, and damage is
reported and walked around, so that what lies behind it is seen too. Memory is bounded by the largest batch.
"""
