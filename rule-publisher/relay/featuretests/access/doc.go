// Package access tests who may do what: certificates, rights on NATS, signatures of rulesets. Tests
// of requests and routes belong to the package envoy.
package access
