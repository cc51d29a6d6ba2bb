"""The bench: starts stacks on the same workload, drives them, and says honestly what a user would gain."""
