"""Running the parts of a batch: on this machine, or on an engine of many."""
