// Package lifecycle tests start, end and restart of a relay, absent servers, and a long life. Only
// its tests run the relay as a process of its own.
package lifecycle
