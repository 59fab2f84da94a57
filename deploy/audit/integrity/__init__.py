"""What dishonest users do to a result, and whether a dishonest shuffler is noticed."""
