"""The environment of the scenarios: providers, their JVM, a cluster, and facts about the machine."""
