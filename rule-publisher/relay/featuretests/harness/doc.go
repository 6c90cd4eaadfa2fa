// Package harness runs a whole relay for tests, beside NATS, a publisher and Envoys: real ones, and
// clients that tests control. It has no tests, and no helpers of a single topic.
package harness
