"""Any order of what can be done with several engine sessions on one target, and with adapters that
are wrong in every way; the text, its grounds and the state must be those of plain decoding."""
