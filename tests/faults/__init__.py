"""Processes killed, disks full, files damaged."""
