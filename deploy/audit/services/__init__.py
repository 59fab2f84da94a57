"""The audit of the running services: what each party really received, kept, wrote and drew."""
