"""Everything that plays more than one party, and everything an operator runs."""
