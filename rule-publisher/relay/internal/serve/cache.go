package serve

import (
	"context"
	"errors"
	"sync"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

// Cache holds one bundle per service (node.cluster), shared by all its Envoys, and the open watches
// of their streams. It takes the place of the library's snapshot cache, which encodes and hashes
// every resource once per Envoy: what is sent from here was encoded once, when its set was made.
type Cache struct {
	mu       sync.Mutex
	services map[string]*entry
	lastID   uint64
}

// entry is one service. A watch is open while its Envoy has what is served.
type entry struct {
	bundle  Bundle // nil: nothing is served yet
	watches map[uint64]watch
}

// watch waits for a change of one type; it is answered once.
type watch interface {
	typeURL() string
	// answer tells the watcher what it does not have; false when it has everything.
	answer(set Set) bool
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
	defer c.mu.Unlock()
	e := c.entry(service)
	before := e.bundle
	e.bundle = bundle
	for _, t := range typeOrder {
		if before != nil && before[t].Version == bundle[t].Version {
			continue
		}
		for id, w := range e.watches {
			if w.typeURL() == t && w.answer(bundle[t]) {
				delete(e.watches, id)
			}
		}
	}
	return nil
}

// Drop forgets what the service was served. Whoever asks for it waits for the next Put.
func (c *Cache) Drop(service string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.services[service]; e != nil {
		e.bundle = nil
		c.tidy(service, e)
	}
}

// Sizes counts the resources that each service is served, by type URL.
func (c *Cache) Sizes() map[string]map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]map[string]int{}
	for service, e := range c.services {
		if e.bundle == nil {
			continue
		}
		out[service] = map[string]int{}
		for _, t := range typeOrder {
			out[service][t] = len(e.bundle[t].items)
		}
	}
	return out
}

func (c *Cache) entry(service string) *entry {
	e := c.services[service]
	if e == nil {
		e = &entry{watches: map[uint64]watch{}}
		c.services[service] = e
	}
	return e
}

func (c *Cache) tidy(service string, e *entry) {
	if e.bundle == nil && len(e.watches) == 0 && c.services[service] == e {
		delete(c.services, service)
	}
}

// open answers the watch at once or keeps it; it returns what ends it.
func (c *Cache) open(service string, w watch) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(service)
	if e.bundle != nil && w.answer(e.bundle[w.typeURL()]) {
		return func() {}
	}
	c.lastID++
	id := c.lastID
	e.watches[id] = w
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(e.watches, id)
		c.tidy(service, e)
	}
}

// CreateWatch implements cache.ConfigWatcher for state-of-the-world streams.
func (c *Cache) CreateWatch(request *cache.Request, sub cache.Subscription, out chan cache.Response) (func(), error) {
	return c.open(request.GetNode().GetCluster(), &wholeWatch{request, sub, out}), nil
}

// CreateDeltaWatch implements cache.ConfigWatcher for delta streams.
func (c *Cache) CreateDeltaWatch(request *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	return c.open(request.GetNode().GetCluster(), &deltaWatch{request, sub, out}), nil
}

// Fetch implements cache.ConfigFetcher; REST is not served.
func (c *Cache) Fetch(context.Context, *cache.Request) (cache.Response, error) {
	return nil, errors.New("only ADS over gRPC is served")
}
