"""`suffix`: guesses from the text itself, by a suffix automaton."""
