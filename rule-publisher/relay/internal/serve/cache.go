package serve

import (
	"context"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

// byService keys snapshots by node.cluster, which is the service.
type byService struct{}

func (byService) ID(node *core.Node) string { return node.GetCluster() }

// Cache shares one snapshot among all Envoys of a service. The library's ADS mode is off: it would
// leave Envoys unanswered that ask for only one of the two route tables. Order between the types is
// kept by setting them one after the other instead.
type Cache struct {
	cache.SnapshotCache
}

// NewCache is an empty cache.
func NewCache() *Cache {
	return &Cache{cache.NewSnapshotCache(false, byService{}, nil)}
}

// Put serves the bundle to the service's Envoys: clusters, then endpoints, then routes. A bundle
// that is not consistent is refused and the old one stays.
func (c *Cache) Put(ctx context.Context, service string, served, bundle Bundle) error {
	if err := bundle.Consistent(); err != nil {
		return err
	}
	if served == nil {
		return c.SetSnapshot(ctx, service, bundle.snapshot())
	}
	step := served
	for _, t := range typeOrder {
		if step[t].Version == bundle[t].Version {
			continue
		}
		step = step.With(t, bundle[t])
		if err := c.SetSnapshot(ctx, service, step.snapshot()); err != nil {
			return err
		}
	}
	return nil
}
