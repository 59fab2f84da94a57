"""The tables of the analyzer's database."""
