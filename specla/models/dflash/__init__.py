"""Block drafters: DFlash, with the heads of DSpark and DFlash2.

``open_drafter`` (load.py) opens a file, ``DraftFile.bind`` makes a drafter for a target
(drafter.py); block.py says what adapters get from it.
"""
