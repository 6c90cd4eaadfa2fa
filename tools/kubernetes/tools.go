//go:build tools

// Package tools pins the real Kubernetes API server and etcd that component tests run against.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
