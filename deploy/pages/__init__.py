"""Self-contained web pages, which load nothing from any network."""
