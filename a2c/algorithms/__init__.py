"""The algorithms, one file each, and the pure maths they share."""
