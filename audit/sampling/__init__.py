"""Tests that the code draws reports, dummies and orders from their stated distributions."""
