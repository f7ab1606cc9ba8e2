"""The move of a stopped query from one state store to another."""
