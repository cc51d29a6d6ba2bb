"""Scenarios: each module declares one or more ``Scenario`` objects; dropping a file here is all it takes."""
