"""The jar: for which Sparks it is made, from what, by which compiler, and which one a session takes."""
