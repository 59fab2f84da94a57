"""The research commands of `shuffledp`."""
