"""Converting drafters (DFlash, DFlash2, DSpark): `drafter` is the whole, the others its parts."""
