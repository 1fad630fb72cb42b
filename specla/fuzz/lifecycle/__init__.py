"""Any order of the operations of several sequences, and what they must leave."""
