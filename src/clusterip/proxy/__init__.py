"""kube-proxy's job: watches Services and EndpointSlices and programs the kernel. Never forwards a packet."""
