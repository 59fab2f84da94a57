"""Images of the three parties, and the three of them in containers on one machine."""
