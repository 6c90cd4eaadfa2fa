// Package serve is the xDS server: it admits Envoys, keeps their streams, and sends each stream
// what is due of the bundle of its service. What a resource is belongs to the package resources,
// and what a request means to the package protocol.
package serve
