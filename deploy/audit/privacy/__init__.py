"""Games that a coalition plays for one person's value, on the views that it has."""
