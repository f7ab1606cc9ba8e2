"""docs/protocol.md: the socket (`server`), its frames, and the types of requests and answers."""
