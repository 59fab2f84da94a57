"""Load tests: simulated users against running services."""
