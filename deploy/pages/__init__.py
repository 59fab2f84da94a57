"""Pages that people look at: each one file, which fetches nothing from anywhere."""
