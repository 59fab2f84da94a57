"""PrivKV: mechanisms for key-value pairs."""
