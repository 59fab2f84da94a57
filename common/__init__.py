"""What the parties must agree on, and what two of them compute."""
