"""Published experiments run again: each a function of a seed, with a table and a picture."""
