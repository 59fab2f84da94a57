"""Version 1 of the wire format: definitions and the code generated from them."""
