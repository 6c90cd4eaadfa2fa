package serve

import (
	"maps"
	"slices"
	"sync"
)

// Cache holds one bundle per service (node.cluster), shared by all its Envoys, and the open streams
// of these.
type Cache struct {
	mu       sync.Mutex
	services map[string]*entry
}

// entry is one service.
type entry struct {
	name    string
	mu      sync.RWMutex
	bundle  Bundle // nil: nothing is served yet
	streams map[*stream]struct{}
}

// NewCache is an empty cache.
func NewCache() *Cache { return &Cache{services: map[string]*entry{}} }

// Put serves the bundle to the service's Envoys: each gets clusters, then endpoints, then routes, of
// those that changed. A bundle that is not consistent is refused and the old one stays.
func (c *Cache) Put(service string, bundle Bundle) error {
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

// Drop forgets what the service was served. Whoever asks for it waits for the next Put.
func (c *Cache) Drop(service string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.services[service]; e != nil {
		e.serve(nil)
		c.tidy(e)
	}
}

// Sizes counts the resources that each service is served, by type URL.
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
		for _, t := range typeOrder {
			out[service][t] = len(bundle[t].items)
		}
	}
	return out
}

// join has the stream woken at each change of what its service is served.
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

func (c *Cache) tidy(e *entry) {
	if e.served() == nil && len(e.streams) == 0 && c.services[e.name] == e {
		delete(c.services, e.name)
	}
}

func (e *entry) serve(bundle Bundle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bundle = bundle
}

func (e *entry) served() Bundle {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.bundle
}
