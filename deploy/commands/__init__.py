"""Commands: one file for each subject."""
