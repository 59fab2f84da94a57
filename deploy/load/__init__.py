"""Simulated users against running services, and what came of them."""
