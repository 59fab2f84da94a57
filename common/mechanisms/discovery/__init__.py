"""Open dictionaries: finding frequent texts and codes that nobody listed."""
