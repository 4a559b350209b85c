"""Pure state machines: they decide, and replay what was decided. No I/O, no clock of their own."""
