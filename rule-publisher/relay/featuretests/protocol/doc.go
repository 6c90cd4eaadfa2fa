// Package protocol tests what a relay says over xDS, with a client of the harness: what is sent, in
// which order, and what is reported. A test that needs a real Envoy belongs to the package envoy.
package protocol
