"""A long mixed load on one runtime, and what must be left of it: nothing."""
