"""Block drafters: DFlash, with the heads of DSpark and DFlash2."""
