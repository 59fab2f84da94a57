"""Attacks on the result: poisoning by fake users, and a dishonest shuffler."""
