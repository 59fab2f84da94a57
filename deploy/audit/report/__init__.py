"""The report of an audit: its rows, recommendations, and how they are shown."""
