"""The publisher: serves the page with which people take part in a browser. It holds no secret."""
