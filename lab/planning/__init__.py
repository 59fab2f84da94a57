"""The planner: choose a protocol and its parameters for given requirements."""
