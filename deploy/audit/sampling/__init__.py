"""Whether the running code draws reports, dummies and orders from the distributions it states."""
