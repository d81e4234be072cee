"""Parameters of processes that train apart, averaged now and then."""
