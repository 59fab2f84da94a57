"""The shuffler: sees who sends but never what, and forgets who before it forwards."""
