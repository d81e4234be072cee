"""Parts of attention that may change."""
