"""What functions for notebooks share: checks of arguments, and values as Python has them."""
