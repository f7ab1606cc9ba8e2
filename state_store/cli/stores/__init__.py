"""Commands about the files of stores."""
