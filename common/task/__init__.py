"""Tasks and their parts: mechanisms, dummies, composition rules and drafts."""
