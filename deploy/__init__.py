"""The operator's tools, and code that runs several parties."""
