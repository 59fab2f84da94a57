"""Web pages: each one file, which fetches nothing from any network."""
