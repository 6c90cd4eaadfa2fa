// Package envoy tests a relay with a real Envoy, also as a sidecar of Istio: requests go where the
// ruleset says. What an Envoy or a relay may do belongs to the package access.
package envoy
