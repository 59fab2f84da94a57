"""Container images of the parties, and a deployment of all of them on one machine."""
