"""Answer queries to the accountant from the command line and from files."""
