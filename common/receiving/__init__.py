"""Receiving a batch in parts: once, in bounded memory, without its repeats."""
