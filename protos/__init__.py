"""Messages of the wire protocol, and their generated code."""
