"""Fakes, in-process parties and recorders, shared by the audit and by the tests."""
