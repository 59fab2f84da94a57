"""The only place that ever sees a true value."""
