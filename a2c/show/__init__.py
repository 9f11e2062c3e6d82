"""A game to look at: played again from its seed and actions, as a video or in the terminal."""
