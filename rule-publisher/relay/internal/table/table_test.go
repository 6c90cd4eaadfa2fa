package table

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
)

var now = time.Unix(1_800_000_000, 0)

func topology() *spillwayv1.Topology {
	return &spillwayv1.Topology{
		Clusters: []*spillwayv1.Cluster{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "island"}},
		Links: []*spillwayv1.Link{
			{SourceCluster: "a", DestinationCluster: "b", RttMs: 50},
			{SourceCluster: "a", DestinationCluster: "c", RttMs: 10},
		},
	}
}

func endpoints(entries ...*spillwayv1.ServiceEndpoints) *spillwayv1.Endpoints {
	return &spillwayv1.Endpoints{Cluster: "a", Services: entries}
}

func at(service, cluster string, addresses ...string) *spillwayv1.ServiceEndpoints {
	return &spillwayv1.ServiceEndpoints{Service: service, Cluster: cluster, Addresses: addresses}
}

func network(t *testing.T, entries ...*spillwayv1.ServiceEndpoints) *Network {
	t.Helper()
	n, err := NewNetwork("a", topology(), endpoints(entries...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var shop = &spillwayv1.TrafficClass{Service: "shop", Method: "GET", PathTemplate: "/items/{id}"}

func rules(t *testing.T, destinations ...*spillwayv1.Destination) *Rules {
	t.Helper()
	r, err := ParseRules(&spillwayv1.Ruleset{Version: 4, ExpiresAt: timestamppb.New(now.Add(time.Minute)),
		InputWindow:    &spillwayv1.InputWindow{Id: "w"},
		TrafficClasses: []*spillwayv1.TrafficClass{shop, {Service: "shop", Method: "POST", PathTemplate: "/items"}},
		Rules:          []*spillwayv1.Rule{{SourceCluster: "a", SourceService: "gate", TrafficClass: shop, Destinations: destinations}}}, "a")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func to(cluster string, weight uint32) *spillwayv1.Destination {
	return &spillwayv1.Destination{Cluster: cluster, Weight: weight}
}

// TestTiersNearestFirst checks that the own cluster is the first tier and that the others follow by
// round-trip time. A cluster without a link is not routed to.
func TestTiersNearestFirst(t *testing.T) {
	n := network(t, at("shop", "b", "10.0.0.2:80"), at("shop", "island", "10.0.0.9:80"), at("shop", "c", "10.0.0.3:80"), at("shop", "a", "10.0.0.1:80"))
	var order []string
	for _, tier := range n.Tiers("shop") {
		order = append(order, tier.Cluster)
	}
	if !slices.Equal(order, []string{"a", "c", "b"}) || len(n.Unreachable) != 1 {
		t.Errorf("tiers %v, unreachable %v", order, n.Unreachable)
	}
}

// TestRuleAppliesToItsServiceAndClass checks that a rule applies only to its source service and
// class. Everything else is local-first.
func TestRuleAppliesToItsServiceAndClass(t *testing.T) {
	n := network(t, at("shop", "a", "10.0.0.1:80"), at("shop", "b", "10.0.0.2:80"))
	r := rules(t, to("b", 7500), to("a", 2500))
	gate := Build("gate", n, r, now)
	if w := gate.Hosts[0].Routes[1]; w.Class.ID() != "shop GET /items/{id}" || !slices.Equal(w.Weights, []Weighted{{"a", 2500}, {"b", 7500}}) {
		t.Errorf("gate: %+v", w)
	}
	if w := gate.Hosts[0].Routes[0]; !slices.Equal(w.Weights, []Weighted{{"a", names.ValueWeightTotal}}) {
		t.Errorf("a class without a rule: %+v", w)
	}
	if other := Build("other", n, r, now); len(other.Hosts[0].Routes) != 0 || other.Hosts[0].Fallback.Weights[0].Cluster != "a" {
		t.Errorf("a service that no rule has call this one: %+v", other.Hosts[0])
	}
	if own := Build("shop", n, r, now); len(own.Inbound) != 2 || gate.Inbound != nil {
		t.Errorf("inbound classes: shop %v, gate %v", own.Inbound, gate.Inbound)
	}
}

// TestExpiredRulesAreLocalFirst checks that expired rules steer nothing and that the version is 0.
// Their classes stay.
func TestExpiredRulesAreLocalFirst(t *testing.T) {
	n := network(t, at("shop", "c", "10.0.0.3:80"), at("shop", "b", "10.0.0.2:80"))
	r := rules(t, to("b", names.ValueWeightTotal))
	expired := Build("gate", n, r, now.Add(time.Minute))
	if expired.Version != 0 || expired.InputWindow != "" || len(expired.Hosts[0].Routes) != 2 ||
		!slices.Equal(expired.Hosts[0].Routes[1].Weights, []Weighted{{"c", names.ValueWeightTotal}}) {
		t.Errorf("%+v", expired)
	}
	if before := Build("gate", n, r, now.Add(time.Minute-1)); before.Version != 4 || before.InputWindow != "w" {
		t.Errorf("before its expiry: %+v", before)
	}
}

// TestSharesOfMissingClusters checks that the share of a cluster without endpoints goes to the
// others in proportion, with a sum of exactly 10 000. When no cluster of the rule has endpoints,
// the result is local-first. Both are reported in Adapted.
func TestSharesOfMissingClusters(t *testing.T) {
	n := network(t, at("shop", "a", "10.0.0.1:80"), at("shop", "b", "10.0.0.2:80"))
	table := Build("gate", n, rules(t, to("a", 1000), to("b", 2000), to("c", 7000)), now)
	if w := table.Hosts[0].Routes[1].Weights; !slices.Equal(w, []Weighted{{"a", 3333}, {"b", 6667}}) || len(table.Adapted) != 1 {
		t.Errorf("weights %v, adapted %v", w, table.Adapted)
	}
	table = Build("gate", n, rules(t, to("c", names.ValueWeightTotal)), now)
	if w := table.Hosts[0].Routes[1].Weights; !slices.Equal(w, []Weighted{{"a", names.ValueWeightTotal}}) || len(table.Adapted) != 1 {
		t.Errorf("weights %v, adapted %v", w, table.Adapted)
	}
}

// TestNetworkErrors checks that every mistake in the files is reported at once, each with its key
// and what is allowed.
func TestNetworkErrors(t *testing.T) {
	bad := endpoints(at("shop", "mars", "10.0.0.1:80"), at("", "a"), at("shop", "b", "host:80", "10.0.0.1:0", "10.0.0.1:1", "10.0.0.1:1"), at("shop", "b"))
	bad.Cluster = "b"
	top := topology()
	top.Links[0].DestinationCluster = "venus"
	top.Services = []*spillwayv1.Service{{Name: "shop", LoadReport: "loud"}}
	_, err := NewNetwork("a", top, bad, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`endpoints services[0].cluster: unknown cluster "mars"; clusters: a, b, c, island`,
		`topology links[0].destination_cluster: unknown cluster "venus"; clusters: a, b, c, island`,
		`topology services[0].load_report: "loud" must be "orca" or absent`,
		`endpoints cluster: "b"; must be "a", the relay's own cluster`,
		`endpoints services[1].service: ""`,
		`endpoints services[2].addresses[0]: "host:80" must be IPv4:port or [IPv6]:port`,
		`endpoints services[2].addresses[1]: "10.0.0.1:0"`,
		`endpoints services[2].addresses[3]: "10.0.0.1:1" is listed twice`,
		`endpoints services[3]: a second entry for service "shop" in cluster "b"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin: %v", want, err)
		}
	}
}

// TestParseRulesErrors checks that a ruleset that breaks the contract is refused with everything
// that is wrong.
func TestParseRulesErrors(t *testing.T) {
	rule := &spillwayv1.Rule{SourceCluster: "a", SourceService: "gate", TrafficClass: shop, Destinations: []*spillwayv1.Destination{to("a", 10000)}}
	twice := &spillwayv1.Rule{SourceCluster: "a", SourceService: "x", TrafficClass: shop, Destinations: []*spillwayv1.Destination{to("a", 5000), to("a", 5000)}}
	huge := &spillwayv1.Rule{SourceCluster: "a", SourceService: "y", TrafficClass: shop,
		Destinations: []*spillwayv1.Destination{to("a", 4_294_967_295), to("b", 10_001)}}
	_, err := ParseRules(&spillwayv1.Ruleset{Rules: []*spillwayv1.Rule{rule, rule, twice, huge, {SourceCluster: "b"}, {SourceCluster: "a"}}}, "a")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"version: 0", "expires_at: missing", "rules[1].traffic_class: a second rule", `rules[2].destinations: cluster "a" is listed twice`,
		"rules[3].destinations: weights sum to 4294977296; must be 10000", `rules[4].source_cluster: "b"`, "rules[5].source_service: empty"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin: %v", want, err)
		}
	}
}
