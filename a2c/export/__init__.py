"""The network as files for other programs, with a card."""
