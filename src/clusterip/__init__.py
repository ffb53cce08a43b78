"""The whole machine behind a Kubernetes ClusterIP, and the microscope that shows it working."""

__version__ = "0.1.0"
