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
	bundle  resources.Bundle        // nil: nothing is served yet
	trial   resources.Bundle        // what the Envoys on trial are served instead
	elects  func(envoy string) bool // which Envoys are on trial; nil: none
	streams map[*stream]struct{}
}

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{services: map[string]*entry{}} }

// Put serves the bundle to the service's Envoys, except those on trial. Each Envoy gets the types
// that changed: first clusters, then endpoints, then routes. A bundle that is not consistent is
// refused, and the previous one stays.
func (c *Cache) Put(service string, bundle resources.Bundle) error {
	if err := bundle.Consistent(); err != nil {
		return err
	}
	c.change(service, func(e *entry) { e.bundle = bundle })
	return nil
}

// PutTrial does the same for the Envoys on trial, after Split.
func (c *Cache) PutTrial(service string, bundle resources.Bundle) error {
	if err := bundle.Consistent(); err != nil {
		return err
	}
	c.change(service, func(e *entry) { e.trial = bundle })
	return nil
}

// Split puts the elected Envoys of the service on trial, beginning with this bundle. While it is
// nil they wait for PutTrial.
func (c *Cache) Split(service string, bundle resources.Bundle, elects func(envoy string) bool) {
	c.change(service, func(e *entry) { e.trial, e.elects = bundle, elects })
}

// Join ends the trial: all Envoys of the service are served the same again.
func (c *Cache) Join(service string) {
	c.change(service, func(e *entry) { e.trial, e.elects = nil, nil })
}

// change changes what the service is served, and wakes its streams.
func (c *Cache) change(service string, change func(*entry)) {
	c.mu.Lock()
	e := c.entry(service)
	e.change(change)
	streams := slices.Collect(maps.Keys(e.streams))
	c.mu.Unlock()
	for _, st := range streams {
		st.wake()
	}
}

// Drop removes the service's bundle. Envoys that ask for it wait for the next Put.
func (c *Cache) Drop(service string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.services[service]; e != nil {
		e.change(func(e *entry) { e.bundle, e.trial, e.elects = nil, nil, nil })
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

func (e *entry) change(change func(*entry)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

// served returns the bundle of the Envoys that are not on trial.
func (e *entry) served() resources.Bundle {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.bundle
}

// servedTo returns the bundle of one Envoy.
func (e *entry) servedTo(envoy string) resources.Bundle {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.elects != nil && e.elects(envoy) {
		return e.trial
	}
	return e.bundle
}
