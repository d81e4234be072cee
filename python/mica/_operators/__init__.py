"""Operators of torch.ops beside those of the table: rare ones, torch's schemas, those of well-known libraries."""
