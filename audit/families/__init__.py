"""Reference distributions and heaviest reports: one file for each family of mechanisms."""
