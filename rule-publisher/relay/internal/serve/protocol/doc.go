// Package protocol is what the xDS wire says in both variants: requests, answers, what one stream
// asks for and was sent, and the order in which types reach an Envoy. It is pure: connections,
// locks and the identity of an Envoy belong to the server, which it may not import.
package protocol
