"""The demo: a complete private collection on one machine."""
