"""What the scenarios run in: the providers, their JVM, a cluster, and what the machine is."""
