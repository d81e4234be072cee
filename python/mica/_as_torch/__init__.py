"""Being torch: the alias under which programs find Mica, torch's names that Mica does not have, and torch._C's."""
