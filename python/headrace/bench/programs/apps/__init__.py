"""The web applications that servers host; this folder is their ``PYTHONPATH``."""
