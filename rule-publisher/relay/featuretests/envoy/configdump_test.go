package envoy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/testkit"
)

// steered maps classes of shop to the cluster that has all their weight. The catch-all stays in
// north.
var steered = map[string]string{
	"GET /items/{id}":              "far",
	"GET /items/special":           "south",
	"GET /items/{id}/parts/{part}": "far",
	"GET /v{version}/items":        "south",
	"GET /{anything}/items":        "far",
	"GET /files/{name}.json":       "south",
	"GET /files/{name}":            "far",
	"GET /p%20q":                   "south",
	"GET /folder/":                 "south",
	"PATCH /items/{id}":            "south",
	"PURGE /items/{id}":            "far",
	"PROPFIND /items/{id}":         "south",
}

// requests maps requests to the cluster that must get them.
var requests = map[string]string{
	"GET /items/7":            "far",
	"GET /items/7?special":    "far",
	"GET /items/special":      "south",
	"GET /items/special?q=1":  "south",
	"GET /items/special2":     "far",
	"GET /items/7/":           "north", // a trailing slash makes another path
	"GET /items/":             "north", // a variable must not be empty
	"GET /items":              "north",
	"GET /ITEMS/7":            "north",
	"GET //items/7":           "north",
	"GET /items//parts/8":     "north",
	"GET /items/7/parts/8":    "far",
	"GET /items/a%2Fb":        "far", // an encoded slash does not separate
	"GET /items/%C3%BC":       "far",
	"GET /v2/items":           "south",
	"GET /v/items":            "far",
	"GET /files/a.json":       "south",
	"GET /files/a.json.gz":    "far",
	"GET /p%20q":              "south",
	"GET /folder/":            "south",
	"GET /folder":             "north",
	"PATCH /items/7":          "south",
	"PURGE /items/7":          "far",
	"PROPFIND /items/7":       "south",
	"DELETE /items/7":         "north",
	"HEAD /items/special":     "north",
	"GET /bulk/1/c0":          "north",
	"GET /nothing/like/it":    "north",
	"OPTIONS /items/7/parts/": "north",
}

const bulk = 150

// bulkWeights returns the weights of the i-th of many classes: north, south, far.
func bulkWeights(i int) []uint32 {
	return []uint32{10000 - uint32(i)*60, uint32(i) * 50, uint32(i) * 10}
}

func manyClasses() *spillwayv1.Ruleset {
	set := harness.Ruleset(7, time.Minute, 10000)
	set.Rules, set.TrafficClasses = nil, nil
	add := func(method, path string, weights ...uint32) {
		class := &spillwayv1.TrafficClass{Service: "shop", Method: method, PathTemplate: path}
		rule := &spillwayv1.Rule{SourceCluster: "north", SourceService: "gate", TrafficClass: class}
		for i, weight := range weights {
			rule.Destinations = append(rule.Destinations, &spillwayv1.Destination{Cluster: []string{"north", "south", "far"}[i], Weight: weight})
		}
		set.Rules, set.TrafficClasses = append(set.Rules, rule), append(set.TrafficClasses, class)
	}
	for class, cluster := range steered {
		method, path, _ := strings.Cut(class, " ")
		add(method, path, map[string][]uint32{"south": {0, 10000, 0}, "far": {0, 0, 10000}}[cluster]...)
	}
	for i := range bulk {
		add("GET", fmt.Sprintf("/bulk/{id}/c%d", i), bulkWeights(i)...)
	}
	return set
}

// dumped is one route in Envoy's config dump.
type dumped struct {
	Name  string `json:"name"`
	Route struct {
		Weighted struct {
			Clusters []struct {
				Name   string `json:"name"`
				Weight uint32 `json:"weight"`
			} `json:"clusters"`
		} `json:"weighted_clusters"`
	} `json:"route"`
}

// dumpedRoutes returns the routes of a virtual host of the outbound table.
func dumpedRoutes(t *testing.T, e *testkit.Envoy, host string) (routes []dumped) {
	t.Helper()
	var dump struct {
		Configs []struct {
			Config struct {
				Name  string `json:"name"`
				Hosts []struct {
					Name   string   `json:"name"`
					Routes []dumped `json:"routes"`
				} `json:"virtual_hosts"`
			} `json:"route_config"`
		} `json:"configs"`
	}
	testkit.Must(t, json.Unmarshal([]byte(e.Get("/config_dump?resource=dynamic_route_configs")), &dump))
	for _, c := range dump.Configs {
		for _, h := range c.Config.Hosts {
			if c.Config.Name == names.XdsOutboundRoute && h.Name == host {
				routes = h.Routes
			}
		}
	}
	return routes
}

// TestRealEnvoyServesTheRuleset checks Envoy's own dump of what it serves. It has every class of
// the ruleset once with exactly its weights, and the catch-all last. Requests take the most
// specific class.
func TestRealEnvoyServesTheRuleset(t *testing.T) {
	_, far := testkit.StartBackend(t, "far", 0)
	p, conf, north := harness.Shop(t, harness.StartNATS(t, t.TempDir(), 0), far)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, r.XDSAddr()), north)
	set := manyClasses()
	p.Put(set)
	testkit.Eventually(t, "version 7 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 7`) })
	routes := dumpedRoutes(t, e, "shop")
	if len(routes) != len(set.Rules)+1 || routes[len(routes)-1].Name != names.XdsCatchAllRoute {
		t.Fatalf("%d routes, want %d with the catch-all last", len(routes), len(set.Rules)+1)
	}
	served := map[string]map[string]uint32{}
	for _, route := range routes {
		weights := map[string]uint32{}
		for _, c := range route.Route.Weighted.Clusters {
			weights[c.Name] = c.Weight
		}
		served[route.Name] = weights
	}
	for _, rule := range set.Rules {
		want := map[string]uint32{}
		for _, d := range rule.GetDestinations() {
			if d.GetWeight() > 0 {
				want["shop|"+d.GetCluster()] = d.GetWeight()
			}
		}
		class := rule.GetTrafficClass()
		if got := served["shop "+class.GetMethod()+" "+class.GetPathTemplate()]; !maps.Equal(got, want) {
			t.Errorf("%s %s: weights %v, want %v", class.GetMethod(), class.GetPathTemplate(), got, want)
		}
	}
	for _, request := range slices.Sorted(maps.Keys(requests)) {
		method, path, _ := strings.Cut(request, " ")
		if got := e.Call("outbound", "shop", method, path); got.Status != 200 || got.Body != requests[request] && method != "HEAD" {
			t.Errorf("%s: %d from %q, want %s", request, got.Status, got.Body, requests[request])
		}
	}
}
