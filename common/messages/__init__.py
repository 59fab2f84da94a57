"""The values that parties exchange."""
