"""The planner: from requirements to a protocol and its parameters."""
