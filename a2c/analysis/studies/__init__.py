"""Two questions people asked, as experiments."""
