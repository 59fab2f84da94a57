"""Container images of the parties, and a deployment of all three on one machine."""
