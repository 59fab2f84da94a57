"""The report of an audit: findings, recommendations, table and page."""
