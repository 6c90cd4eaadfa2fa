// Package kubeletcpureceiver reads from the node's kubelet how much CPU each service's container
// uses and may use. It requests /stats/summary and /pods from the kubelet itself. It needs no API
// server, and no permission beyond get on nodes/stats and nodes/pods.
package kubeletcpureceiver
