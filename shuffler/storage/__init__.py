"""What the shuffler keeps on its disk until a batch is delivered."""
