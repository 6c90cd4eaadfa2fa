package main

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/serve"
)

// recorder keeps what an Envoy would have after each response, and finds routes to what it has not.
type recorder struct {
	t         *testing.T
	sotw      bool
	clusters  map[string]bool
	endpoints map[string]bool
	routed    int
}

// take one response. A cluster whose endpoints have not been sent yet does not count as had.
func (r *recorder) take(u update) {
	r.t.Helper()
	if u.typeURL == serve.ClusterType && r.sotw {
		r.clusters = map[string]bool{}
	}
	for _, name := range u.removed {
		if u.typeURL == serve.ClusterType {
			delete(r.clusters, name)
		}
	}
	for _, packed := range u.resources {
		message, err := packed.UnmarshalNew()
		must(r.t, err)
		switch resource := message.(type) {
		case *cluster.Cluster:
			r.clusters[resource.GetName()] = true
		case *endpoint.ClusterLoadAssignment:
			r.endpoints[resource.GetClusterName()] = true
		case *route.RouteConfiguration:
			r.check(resource, u.version)
		}
	}
}

func (r *recorder) check(config *route.RouteConfiguration, version string) {
	r.t.Helper()
	for _, host := range config.GetVirtualHosts() {
		for _, one := range host.GetRoutes() {
			for _, w := range one.GetRoute().GetWeightedClusters().GetClusters() {
				r.routed++
				if !r.clusters[w.GetName()] || !r.endpoints[w.GetName()] {
					r.t.Errorf("version %s routes to %s; clusters %v, endpoints %v", version, w.GetName(), r.clusters, r.endpoints)
				}
			}
		}
	}
}

// Whatever changes (rules name a new destination, clusters lose and regain their endpoints), clusters and
// their endpoints reach an Envoy before the routes that name them, and leave after those that did.
func TestRoutesNeverNameWhatAnEnvoyHasNot(t *testing.T) {
	eachVariant(t, func(t *testing.T, open func(*testing.T, *running, string) client) {
		server := startNATS(t, t.TempDir(), 0)
		p := newPublisher(t, server)
		conf := testConfig(t, server.ClientURL())
		r := startRelay(t, conf)
		c := open(t, r, "a")
		rec := &recorder{t: t, sotw: strings.HasSuffix(t.Name(), "sotw"), clusters: map[string]bool{}, endpoints: map[string]bool{}}
		all := []string{"shop|north", "shop|south", "shop|far", "stock|south"}
		c.subscribe(serve.ClusterType)
		rec.follow(c, serve.ClusterType)
		c.subscribe(serve.EndpointType, all...)
		rec.follow(c, serve.EndpointType)
		c.subscribe(serve.RouteType, names.XdsInboundRoute, names.XdsOutboundRoute)
		rec.follow(c, serve.RouteType)
		random := rand.New(rand.NewPCG(1, 1))
		for version := range uint64(12) {
			endpoints := testEndpoints
			if random.IntN(2) == 0 {
				endpoints = strings.Replace(endpoints, `  - {service: shop, cluster: far, addresses: ["127.0.0.1:9103"]}`+"\n", "", 1)
			}
			if random.IntN(2) == 0 {
				endpoints = strings.Replace(endpoints, `  - {service: shop, cluster: north, addresses: ["127.0.0.1:9101"]}`+"\n", "", 1)
			}
			must(t, os.WriteFile(conf.Endpoints, []byte(endpoints), 0o600))
			p.put(ruleset(version+1, time.Minute, uint32(version)*500, 9000-uint32(version)*500, 1000))
			rec.quiet(c, 700*time.Millisecond)
		}
		rec.quiet(c, 4*time.Second)
		if rec.routed < 50 {
			t.Errorf("only %d routes were seen", rec.routed)
		}
	})
}

// follow responses until one of the type has come.
func (r *recorder) follow(c client, typeURL string) {
	r.t.Helper()
	for {
		u := next(r.t, c)
		r.take(u)
		c.answer(u, "")
		if u.typeURL == typeURL {
			return
		}
	}
}

// quiet follows responses until none has come for the time given.
func (r *recorder) quiet(c client, silence time.Duration) {
	r.t.Helper()
	for {
		select {
		case u := <-c.updates():
			r.take(u)
			c.answer(u, "")
		case err := <-c.failed():
			r.t.Fatal(err)
		case <-time.After(silence):
			return
		}
	}
}
