"""What the code that torch generates calls of its engine."""

from mica._C._dynamo import guards  # noqa: F401
