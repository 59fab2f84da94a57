"""Code that runs several parties, and the operator's tools."""
