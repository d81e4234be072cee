"""What makes masks."""
