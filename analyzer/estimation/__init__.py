"""From cell counts to frequencies with intervals, and to a refined histogram."""
