"""`adaptive`: how many of another adapter's candidates pay, measured."""
