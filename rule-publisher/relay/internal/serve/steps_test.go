package serve

import (
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// bundle returns a bundle with the given clusters, in which all routes lead to the first.
func bundle(t *testing.T, version uint64, names ...string) Bundle {
	t.Helper()
	var clusters []*cluster.Cluster
	var assignments []*endpoint.ClusterLoadAssignment
	for _, name := range names {
		clusters = append(clusters, &cluster.Cluster{Name: name})
		assignments = append(assignments, &endpoint.ClusterLoadAssignment{ClusterName: name})
	}
	r := &route.RouteConfiguration{Name: "out", VirtualHosts: []*route.VirtualHost{{Name: "h", Routes: []*route.Route{{
		Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: names[0]}}}}}}}}
	cds, err1 := NewSet(version, clusters, Set{})
	eds, err2 := NewSet(version, assignments, Set{})
	rds, err3 := NewSet(version, []*route.RouteConfiguration{r}, Set{})
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return Bundle{ClusterType: cds, EndpointType: eds, RouteType: rds}
}

// TestStepsNeverLeaveARouteWithoutItsCluster checks the steps from any bundle to any other. Every
// step is consistent, clusters come before the routes that need them and leave after the routes
// that needed them, and the sequence ends.
func TestStepsNeverLeaveARouteWithoutItsCluster(t *testing.T) {
	for _, test := range []struct {
		from, to []string
		steps    int
	}{
		{nil, []string{"a"}, 1},
		{[]string{"a"}, []string{"a"}, 1},
		{[]string{"a"}, []string{"b", "a"}, 2},
		{[]string{"a", "b"}, []string{"b"}, 2},
		{[]string{"a"}, []string{"b"}, 3},
		{[]string{"a", "b"}, []string{"a"}, 2},
	} {
		var served Bundle
		if test.from != nil {
			served = bundle(t, 1, test.from...)
		}
		target := bundle(t, 2, test.to...)
		steps := 0
		for last := false; !last; steps++ {
			step, done := NextStep(served, target)
			if err := step.Consistent(); err != nil || steps > 3 {
				t.Fatalf("%v to %v, step %d: %v", test.from, test.to, steps, err)
			}
			last, served = done, step
		}
		if !served.Same(target) || steps != test.steps {
			t.Errorf("%v to %v: %d steps, want %d; arrived: %v", test.from, test.to, steps, test.steps, served.Same(target))
		}
	}
}

// TestVersionsNameContent checks that a version identifies content. The same content keeps its
// version, whatever the ruleset version, and other content never shares it, also after a restart.
func TestVersionsNameContent(t *testing.T) {
	first := bundle(t, 1, "a")
	same, err := NewSet(2, []*cluster.Cluster{{Name: "a"}}, first[ClusterType])
	if err != nil || same.Version != first[ClusterType].Version {
		t.Errorf("%s, %s, %v", same.Version, first[ClusterType].Version, err)
	}
	if other := bundle(t, 1, "b"); other[ClusterType].Version == first[ClusterType].Version {
		t.Error("different content, same version")
	}
	if RulesetVersion("42.0a0b") != 42 || RulesetVersion("rubbish") != 0 {
		t.Error("the ruleset version is not read back")
	}
}

// TestConsistent checks that a bundle with a route to an absent cluster, or with a cluster without
// endpoints, is not consistent.
func TestConsistent(t *testing.T) {
	good := bundle(t, 1, "a")
	if err := good.Consistent(); err != nil {
		t.Error(err)
	}
	other := bundle(t, 1, "b")
	for _, typeURL := range Types {
		if good.With(typeURL, other[typeURL]).Consistent() == nil {
			t.Errorf("%s replaced: not noticed", typeURL)
		}
	}
	if _, err := NewSet(1, []*cluster.Cluster{{Name: "a"}, {Name: "a"}}, Set{}); err == nil {
		t.Error("a name twice: not noticed")
	}
}
