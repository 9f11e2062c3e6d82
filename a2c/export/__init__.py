"""Export of the network for other programs, with a card."""
