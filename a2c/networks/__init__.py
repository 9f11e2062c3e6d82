"""The networks, their layers and optimizers."""
