"""Pages and pictures of the benchmarks: Markdown templates, the figures that they name, and a renderer."""
