"""Mechanisms for one number and for vectors."""
