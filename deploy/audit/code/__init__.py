"""Whether the running code draws, orders, counts and promises what it says: against exact laws."""
