"""How much the masks are to leave, epoch by epoch."""
