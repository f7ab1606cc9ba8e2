"""Work on many stores: in threads of this process, or as tasks of a Spark job. One interface for both."""
