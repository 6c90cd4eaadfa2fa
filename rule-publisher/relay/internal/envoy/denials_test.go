package envoy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/envoy"
	"spillway.dev/relay/internal/table"
)

var clusters = []string{"east", "mid", "north", "west"}

func meshed(t *testing.T) *table.Network {
	t.Helper()
	topology, endpoints := &spillwayv1.Topology{}, &spillwayv1.Endpoints{Cluster: "west"}
	for i, name := range clusters {
		topology.Clusters = append(topology.Clusters, &spillwayv1.Cluster{Name: name})
		topology.Links = append(topology.Links, &spillwayv1.Link{SourceCluster: "west", DestinationCluster: name, RttMs: float64(i)})
		endpoints.Services = append(endpoints.Services, &spillwayv1.ServiceEndpoints{Service: "shop", Cluster: name,
			Addresses: []string{fmt.Sprintf("10.0.0.%d:80", i+1)}})
	}
	network, err := table.NewNetwork("west", topology, endpoints, nil)
	if err != nil {
		t.Fatal(err)
	}
	return network
}

// some returns a random selection of at least one cluster, perhaps all.
func some(random *rand.Rand) []string {
	for {
		chosen := slices.DeleteFunc(slices.Clone(clusters), func(string) bool { return random.IntN(3) == 0 })
		if len(chosen) > 0 {
			return chosen
		}
	}
}

// anyRuleset returns a ruleset with one rule and denials of some classes, perhaps of all.
func anyRuleset(random *rand.Rand, now time.Time) *spillwayv1.Ruleset {
	ruleset := &spillwayv1.Ruleset{Version: 1, ExpiresAt: timestamppb.New(now.Add(time.Duration(random.IntN(2)) * time.Hour))}
	for i := range 4 {
		class := &spillwayv1.TrafficClass{Service: "shop", Method: "GET", PathTemplate: fmt.Sprintf("/%d/{id}", i)}
		ruleset.TrafficClasses = append(ruleset.TrafficClasses, class)
		if random.IntN(2) == 0 {
			ruleset.Denials = append(ruleset.Denials, &spillwayv1.Denial{SourceCluster: "west", TrafficClass: class, Clusters: some(random)})
		}
	}
	if random.IntN(3) == 0 {
		ruleset.Denials = append(ruleset.Denials, &spillwayv1.Denial{SourceCluster: "west", Clusters: some(random)})
	}
	ruleset.Rules = []*spillwayv1.Rule{{SourceCluster: "west", SourceService: "gate", TrafficClass: ruleset.TrafficClasses[0],
		Destinations: []*spillwayv1.Destination{{Cluster: "east", Weight: 4000}, {Cluster: "mid", Weight: 6000}}}}
	return ruleset
}

// forbidden returns the clusters that the ruleset itself denies to requests of the route.
func forbidden(ruleset *spillwayv1.Ruleset, route string) map[string]bool {
	found := map[string]bool{}
	for _, d := range ruleset.GetDenials() {
		class := d.GetTrafficClass()
		if class == nil || route == class.GetService()+" "+class.GetMethod()+" "+class.GetPathTemplate() {
			for _, name := range d.GetClusters() {
				found[name] = true
			}
		}
	}
	return found
}

// TestNoEndpointOfADeniedCluster checks, for random denials, that no route leads to an Envoy
// cluster that has an endpoint, at any priority, in a cluster that is denied to its requests. All
// other clusters remain for failover. A route answers by itself exactly when every cluster is
// denied. All this holds for expired rulesets too.
func TestNoEndpointOfADeniedCluster(t *testing.T) {
	network, now := meshed(t), time.Unix(1_800_000_000, 0)
	closed := 0
	for seed := range uint64(300) {
		ruleset := anyRuleset(rand.New(rand.NewPCG(seed, 5)), now)
		rules, err := table.ParseRules(ruleset, "west")
		if err != nil {
			t.Fatal(err)
		}
		_, assignments := envoy.Backends(network, rules.Denials())
		served := map[string]*endpoint.ClusterLoadAssignment{}
		for _, a := range assignments {
			if served[a.GetClusterName()] != nil {
				t.Fatalf("seed %d: %s is there twice", seed, a.GetClusterName())
			}
			served[a.GetClusterName()] = a
		}
		outbound, err := envoy.OutboundRoutes(table.Build("gate", network, rules, now))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range outbound.GetVirtualHosts()[0].GetRoutes() {
			denied := forbidden(ruleset, r.GetName())
			if len(denied) == len(clusters) {
				closed++
			}
			if (len(denied) == len(clusters)) != (r.GetDirectResponse() != nil) {
				t.Fatalf("seed %d: %s with %v denied is %v", seed, r.GetName(), denied, r)
			}
			for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
				if got := zones(served[w.GetName()]); len(got) != len(clusters)-len(denied) || slices.ContainsFunc(got, func(z string) bool { return denied[z] }) {
					t.Fatalf("seed %d: %s with %v denied leads by %s to %v", seed, r.GetName(), denied, w.GetName(), got)
				}
			}
		}
	}
	if closed == 0 {
		t.Error("no seed closes a route")
	}
}

func zones(assignment *endpoint.ClusterLoadAssignment) (out []string) {
	for _, locality := range assignment.GetEndpoints() {
		out = append(out, locality.GetLocality().GetZone())
	}
	return out
}

// TestDenialsAddClusters checks that denials add Envoy clusters and change none of those that exist
// without them.
func TestDenialsAddClusters(t *testing.T) {
	network := meshed(t)
	rules, err := table.ParseRules(&spillwayv1.Ruleset{Version: 1, ExpiresAt: timestamppb.Now(), Denials: []*spillwayv1.Denial{
		{SourceCluster: "west", TrafficClass: &spillwayv1.TrafficClass{Service: "shop", Method: "GET", PathTemplate: "/"}, Clusters: []string{"east", "mid"}}}}, "west")
	if err != nil {
		t.Fatal(err)
	}
	before, _ := envoy.Backends(network, table.Denials{})
	after, _ := envoy.Backends(network, rules.Denials())
	var added []string
	for i, c := range after {
		if i < len(before) && c.String() != before[i].String() {
			t.Errorf("%s became %s", before[i], c)
		}
		if i >= len(before) {
			added = append(added, c.GetName())
		}
	}
	if want := []string{"shop|west|!east|!mid", "shop|north|!east|!mid"}; !slices.Equal(added, want) {
		t.Errorf("added %v, want %v", added, want)
	}
}

// TestRefusalFitsEnvoy checks that the answer of a closed route is within Envoy's limits, however
// many clusters are denied and whatever their names are.
func TestRefusalFitsEnvoy(t *testing.T) {
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprintf("cluster-%%%03d", i))
	}
	config, err := envoy.OutboundRoutes(table.Table{Hosts: []table.Host{{Service: "shop", Fallback: table.Way{Without: many}}}})
	if err != nil {
		t.Fatal(err)
	}
	r := config.GetVirtualHosts()[0].GetRoutes()[0]
	value := r.GetResponseHeadersToAdd()[0].GetHeader()
	if err := config.ValidateAll(); err != nil || r.GetDirectResponse().GetStatus() != 503 {
		t.Errorf("%v: %v", err, r)
	}
	if !strings.HasPrefix(value.GetValue(), "cluster-%%000, ") || value.GetKey() != names.HttpHeaderDenied {
		t.Errorf("header %s: %.40s", value.GetKey(), value.GetValue())
	}
	if body := r.GetDirectResponse().GetBody().GetInlineString(); len(body) > 4096 || !strings.Contains(body, "cluster-%000") {
		t.Errorf("%d bytes: %.80s", len(body), body)
	}
}
