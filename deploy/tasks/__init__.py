"""Drafts, tasks and budgets as operators see them."""
