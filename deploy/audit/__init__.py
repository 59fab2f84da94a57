"""What each coalition of parties could really learn, executed on the deployed code."""
