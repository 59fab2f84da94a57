"""Local hashing over finite fields and over strings."""
