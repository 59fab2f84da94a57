"""The demo: three processes collect a histogram."""
