// Package count keeps the relay's counters: what it refused, ignored or dropped, by reason.
package count

import (
	"maps"
	"sync"
)

// Counters by name; the zero value is ready and safe for concurrent use.
type Counters struct {
	mu     sync.Mutex
	values map[string]uint64
}

// Add one to the counter.
func (c *Counters) Add(name string) { c.AddN(name, 1) }

// AddN adds n to the counter.
func (c *Counters) AddN(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[string]uint64{}
	}
	c.values[name] += uint64(n)
}

// Get the counter's value.
func (c *Counters) Get(name string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values[name]
}

// All is a copy of every counter.
func (c *Counters) All() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := maps.Clone(c.values)
	if all == nil {
		all = map[string]uint64{}
	}
	return all
}
