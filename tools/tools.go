//go:build tools

// Package tools pins the Go programs that the local stack, the lab and `make generate` run.
package tools

import (
	_ "github.com/Shopify/toxiproxy/v2/cmd/server"
	_ "github.com/f1bonacc1/process-compose"
	_ "github.com/tsenart/vegeta/v12"
	_ "google.golang.org/protobuf/cmd/protoc-gen-go"
)
