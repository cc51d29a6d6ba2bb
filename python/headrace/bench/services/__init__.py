"""Services: each module declares one or more ``Service`` objects; dropping a file here is all it takes."""
