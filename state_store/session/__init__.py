"""The jar and the configuration of a session: supported Sparks, sources, compiler, choice of a jar."""
