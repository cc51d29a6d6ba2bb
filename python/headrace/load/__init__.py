"""The load generator: ``headrace load URL``."""
