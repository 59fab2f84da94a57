"""The protocol buffer package shuffledp."""
