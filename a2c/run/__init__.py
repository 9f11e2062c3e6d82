"""One run: the loop, and everything that it opens, writes and saves."""
