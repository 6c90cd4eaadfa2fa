//go:build tools

// Package tools pins golangci-lint, the lints of `make check` for Go, with everything that it imports.
package tools

import _ "github.com/golangci/golangci-lint/v2/cmd/golangci-lint"
