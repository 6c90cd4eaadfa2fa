// Package kubeletcpureceiver reads from the node's kubelet how much CPU each service's container uses and may use.
// It asks /stats/summary and /pods, both of the kubelet itself: no API server, and no more than get on
// nodes/stats and nodes/pods.
package kubeletcpureceiver
