"""What the code that torch generates calls of its engine."""
