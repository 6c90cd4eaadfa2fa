//go:build tools

// Package tools pins promtool, which checks infra/alerts and runs its tests.
package tools

import _ "github.com/prometheus/prometheus/cmd/promtool"
