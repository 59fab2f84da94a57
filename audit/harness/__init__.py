"""In-process parties, fakes and a relay, shared by the audit and the tests."""
