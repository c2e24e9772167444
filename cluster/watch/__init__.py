"""Lists and watches of each kind, turned into changes for the ledger."""
