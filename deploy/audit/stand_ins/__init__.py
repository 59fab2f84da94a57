"""What stands in place of another party, a pool or a clock where checks play on a small stage."""
