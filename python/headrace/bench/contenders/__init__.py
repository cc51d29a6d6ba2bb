"""Contenders: each module declares one or more ``Contender`` objects; dropping a file here is all it takes."""
