"""The analyzer: sees what was reported but never by whom."""
