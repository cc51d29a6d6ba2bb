"""The small servers that contenders run; started by path, never imported by the bench."""
