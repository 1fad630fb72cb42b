"""Recurrent layers, attention and their state, without a model around them."""
