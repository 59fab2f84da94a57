"""Terminal and file output."""
