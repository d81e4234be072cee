"""Instructions that a statement takes, counted by Valgrind."""
