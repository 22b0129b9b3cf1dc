"""Bytes to values and back: no sockets, no threads, no clock."""
