"""Read, show and save drafts, tasks and privacy budgets."""
