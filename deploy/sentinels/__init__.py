"""An operator's test submissions."""
