"""Privacy guarantees: upper bounds on ε and δ against each coalition."""
