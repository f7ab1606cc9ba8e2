"""Files for Prometheus and Grafana, and pages of the documentation, written from the declarations."""
