"""Locks of other libraries, by their own signatures, held by Holdline."""
