package serve

import (
	"maps"
	"slices"
	"sync"

	"spillway.dev/relay/internal/serve/resources"
)

// Cache holds one bundle per service (node.cluster), shared by all Envoys of the service, and their
// open streams.
type Cache struct {
	mu       sync.Mutex
	services map[string]*entry
}

// entry is one service.
type entry struct {
	name    string
	mu      sync.RWMutex
	bundle  resources.Bundle // nil: nothing is served yet
	streams map[*stream]struct{}
}

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{services: map[string]*entry{}} }

// Put serves the bundle to the service's Envoys. Each Envoy gets the types that changed: first
// clusters, then endpoints, then routes. A bundle that is not consistent is refused, and the
// previous one stays.
func (c *Cache) Put(service string, bundle resources.Bundle) error {
	if err := bundle.Consistent(); err != nil {
		return err
	}
	c.mu.Lock()
	e := c.entry(service)
	e.serve(bundle)
	streams := slices.Collect(maps.Keys(e.streams))
	c.mu.Unlock()
	for _, st := range streams {
		st.wake()
	}
	return nil
}

// Drop removes the service's bundle. Envoys that ask for it wait for the next Put.
func (c *Cache) Drop(service string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.services[service]; e != nil {
		e.serve(nil)
		c.tidy(e)
	}
}

// Sizes returns the number of resources that each service is served, by type URL.
func (c *Cache) Sizes() map[string]map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]map[string]int{}
	for service, e := range c.services {
		bundle := e.served()
		if bundle == nil {
			continue
		}
		out[service] = map[string]int{}
		for _, t := range resources.Types {
			out[service][t] = len(bundle[t].Items())
		}
	}
	return out
}

// join registers the stream, so that it is woken whenever the bundle of its service changes.
func (c *Cache) join(service string, st *stream) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(service)
	e.streams[st] = struct{}{}
	return e
}

func (c *Cache) leave(e *entry, st *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(e.streams, st)
	c.tidy(e)
}

func (c *Cache) entry(service string) *entry {
	e := c.services[service]
	if e == nil {
		e = &entry{name: service, streams: map[*stream]struct{}{}}
		c.services[service] = e
	}
	return e
}

// tidy removes the entry when it has neither a bundle nor a stream.
func (c *Cache) tidy(e *entry) {
	if e.served() == nil && len(e.streams) == 0 && c.services[e.name] == e {
		delete(c.services, e.name)
	}
}

func (e *entry) serve(bundle resources.Bundle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bundle = bundle
}

func (e *entry) served() resources.Bundle {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.bundle
}
