package protocol

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

// recorder treats clusters as Envoy does. It asks for the endpoints of the clusters that it has,
// and counts a cluster as usable once it has the endpoints. It forgets both when the cluster is
// removed. It records routes to clusters that it cannot use, at their arrival or later.
type recorder struct {
	t         *testing.T
	c         harness.Client
	clusters  map[string]bool
	endpoints map[string]bool // by present cluster
	asked     []string        // clusters whose endpoints it asks for
	routes    *route.RouteConfiguration
	routed    int
	left      int // clusters that were removed
}

func newRecorder(t *testing.T, c harness.Client) *recorder {
	return &recorder{t: t, c: c, clusters: map[string]bool{}, endpoints: map[string]bool{}}
}

// take processes one response, answers it, and asks for what follows from it.
func (r *recorder) take(u harness.Update) {
	r.t.Helper()
	if _, whole := r.c.(*harness.SotwClient); whole && u.TypeURL == resources.ClusterType {
		r.clusters = map[string]bool{}
	}
	if u.TypeURL == resources.ClusterType {
		for _, name := range u.Removed {
			delete(r.clusters, name)
		}
	}
	r.read(u)
	r.c.Answer(u, "")
	if u.TypeURL == resources.ClusterType {
		r.askForEndpoints()
	}
	r.check(u.Version)
}

func (r *recorder) read(u harness.Update) {
	r.t.Helper()
	for _, packed := range u.Resources {
		message, err := packed.UnmarshalNew()
		testkit.Must(r.t, err)
		switch resource := message.(type) {
		case *cluster.Cluster:
			r.clusters[resource.GetName()] = true
		case *endpoint.ClusterLoadAssignment:
			r.endpoints[resource.GetClusterName()] = r.clusters[resource.GetClusterName()]
		case *route.RouteConfiguration:
			if resource.GetName() == names.XdsOutboundRoute {
				r.routes = resource
			}
		}
	}
}

// askForEndpoints asks for the endpoints of exactly the present clusters.
func (r *recorder) askForEndpoints() {
	r.t.Helper()
	now := slices.Sorted(maps.Keys(r.clusters))
	added, gone := without(now, r.asked), without(r.asked, now)
	r.asked = now
	for _, name := range gone {
		delete(r.endpoints, name)
	}
	r.left += len(gone)
	switch c := r.c.(type) {
	case *harness.SotwClient:
		if len(added)+len(gone) > 0 {
			c.Subscribe(resources.EndpointType, now...)
		}
	case *harness.DeltaClient:
		if len(added) > 0 {
			c.Subscribe(resources.EndpointType, added...)
		}
		if len(gone) > 0 {
			testkit.Must(r.t, c.Stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resources.EndpointType, ResourceNamesUnsubscribe: gone}))
		}
	}
}

func without(names, others []string) (out []string) {
	for _, name := range names {
		if !slices.Contains(others, name) {
			out = append(out, name)
		}
	}
	return out
}

func (r *recorder) check(version string) {
	r.t.Helper()
	for _, host := range r.routes.GetVirtualHosts() {
		for _, route := range host.GetRoutes() {
			for _, w := range route.GetRoute().GetWeightedClusters().GetClusters() {
				r.routed++
				if !r.clusters[w.GetName()] || !r.endpoints[w.GetName()] {
					r.t.Errorf("version %s routes to %s; clusters %v, endpoints %v", version, w.GetName(), r.clusters, r.endpoints)
				}
			}
		}
	}
}

// TestRoutesNeverNameWhatAnEnvoyHasNot checks the order of changes: rules name a new destination,
// and clusters lose and regain their endpoints. Clusters and their endpoints always reach an Envoy
// before the routes that name them, and leave after the routes that named them.
func TestRoutesNeverNameWhatAnEnvoyHasNot(t *testing.T) {
	harness.EachVariant(t, func(t *testing.T, open func(*testing.T, *harness.Relay, string) harness.Client) {
		p, r := harness.Start(t)
		c := open(t, r, "a")
		rec := newRecorder(t, c)
		c.Subscribe(resources.ClusterType)
		rec.follow(resources.EndpointType)
		c.Subscribe(resources.RouteType, names.XdsInboundRoute, names.XdsOutboundRoute)
		rec.follow(resources.RouteType)
		random := rand.New(rand.NewPCG(1, 1))
		for version := range uint64(12) {
			endpoints := harness.Endpoints
			if random.IntN(2) == 0 {
				endpoints = strings.Replace(endpoints, `  - {service: shop, cluster: far, addresses: ["127.0.0.1:9103"]}`+"\n", "", 1)
			}
			if random.IntN(2) == 0 {
				endpoints = strings.Replace(endpoints, `  - {service: shop, cluster: north, addresses: ["127.0.0.1:9101"]}`+"\n", "", 1)
			}
			testkit.Must(t, os.WriteFile(r.Config.Endpoints, []byte(endpoints), 0o600))
			p.Put(harness.Ruleset(version+1, time.Minute, uint32(version)*500, 9000-uint32(version)*500, 1000))
			rec.quiet(700 * time.Millisecond)
		}
		rec.quiet(4 * time.Second)
		if rec.routed < 50 || rec.left == 0 {
			t.Errorf("only %d routes were seen, %d clusters went", rec.routed, rec.left)
		}
	})
}

// follow processes responses until one of the type has arrived.
func (r *recorder) follow(typeURL string) {
	r.t.Helper()
	for {
		u := harness.Next(r.t, r.c)
		r.take(u)
		if u.TypeURL == typeURL {
			return
		}
	}
}

// quiet processes responses until none has arrived for the given time.
func (r *recorder) quiet(silence time.Duration) {
	r.t.Helper()
	for {
		select {
		case u := <-r.c.Updates():
			r.take(u)
		case err := <-r.c.Failed():
			r.t.Fatal(err)
		case <-time.After(silence):
			return
		}
	}
}
