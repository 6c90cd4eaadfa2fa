package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/serve/resources"
)

// reach returns, sorted, every cluster in which Envoys of service a have endpoints for requests of
// b's class.
func reach(t *testing.T, b *bed) (zones []string) {
	t.Helper()
	served := b.services["a"].served
	leadsTo := map[string]bool{}
	for _, packed := range served[resources.RouteType].Packed() {
		config := &route.RouteConfiguration{}
		if err := packed.UnmarshalTo(config); err != nil {
			t.Fatal(err)
		}
		for _, host := range config.GetVirtualHosts() {
			for _, r := range host.GetRoutes() {
				for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
					leadsTo[w.GetName()] = leadsTo[w.GetName()] || config.GetName() == names.XdsOutboundRoute && r.GetName() == "b GET /{id}"
				}
			}
		}
	}
	for _, packed := range served[resources.EndpointType].Packed() {
		assignment := &endpoint.ClusterLoadAssignment{}
		if err := packed.UnmarshalTo(assignment); err != nil {
			t.Fatal(err)
		}
		for _, locality := range assignment.GetEndpoints() {
			if leadsTo[assignment.GetClusterName()] {
				zones = append(zones, locality.GetLocality().GetZone())
			}
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// TestDenialsAreServedUntilLifted checks that denials narrow what Envoys are served, and that they
// survive the expiry of the ruleset and changes of endpoints. Once lifted, they leave nothing
// behind.
func TestDenialsAreServedUntilLifted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBed(t, mesh(t, "north", "south", "far"))
		b.connected("a", "a/1")
		plain := rulesetOf(1, time.Hour, map[string]uint32{"a": 5000})
		b.take(plain)
		before := b.services["a"].served[resources.ClusterType].Version
		if got := reach(t, b); !slices.Equal(got, []string{"far", "north", "south"}) {
			t.Fatalf("without denials %v are reached", got)
		}
		denying := rulesetOf(2, time.Minute, map[string]uint32{"a": 5000})
		denying.Denials = []*spillwayv1.Denial{{SourceCluster: "north", TrafficClass: class("b"), Clusters: []string{"south"}}}
		allowed := []string{"far", "north"}
		b.take(denying)
		if got := reach(t, b); !slices.Equal(got, allowed) {
			t.Errorf("with the denial %v are reached", got)
		}
		time.Sleep(2 * time.Minute)
		b.rebuild()
		b.settle()
		if got := reach(t, b); b.Status().Version != 0 || !slices.Equal(got, allowed) {
			t.Errorf("expired, version %d: %v are reached", b.Status().Version, got)
		}
		b.network = meshOf(t, 81, nil, "north", "south", "far")
		b.rebuild()
		b.settle()
		if got := reach(t, b); !slices.Equal(got, allowed) {
			t.Errorf("with other endpoints %v are reached", got)
		}
		b.network = mesh(t, "north", "south", "far")
		lifted := rulesetOf(3, time.Hour, map[string]uint32{"a": 5000})
		b.take(lifted)
		after := b.services["a"].served[resources.ClusterType].Version
		_, was, _ := strings.Cut(before, ".")
		if _, is, _ := strings.Cut(after, "."); is != was || len(reach(t, b)) != 3 {
			t.Errorf("lifted: clusters %s, were %s; %v are reached", after, before, reach(t, b))
		}
	})
}
