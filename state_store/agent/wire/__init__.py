"""The protocol of docs/protocol.md: the socket (`server`), frames, and the types of requests and answers."""
