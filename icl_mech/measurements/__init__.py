"""What can be measured: a folder for each family of methods."""
