"""Two questions that people asked, as experiments."""
