package resources_test

import (
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/serve/resources/resourcestest"
)

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
		var served resources.Bundle
		if test.from != nil {
			served = resourcestest.Bundle(t, 1, test.from...)
		}
		target := resourcestest.Bundle(t, 2, test.to...)
		steps := 0
		for last := false; !last; steps++ {
			step, done := resources.NextStep(served, target)
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
	first := resourcestest.Bundle(t, 1, "a")
	same, err := resources.NewSet(2, []*cluster.Cluster{{Name: "a"}}, first[resources.ClusterType])
	if err != nil || same.Version != first[resources.ClusterType].Version {
		t.Errorf("%s, %s, %v", same.Version, first[resources.ClusterType].Version, err)
	}
	if other := resourcestest.Bundle(t, 1, "b"); other[resources.ClusterType].Version == first[resources.ClusterType].Version {
		t.Error("different content, same version")
	}
	if resources.RulesetVersion("42.0a0b") != 42 || resources.RulesetVersion("rubbish") != 0 {
		t.Error("the ruleset version is not read back")
	}
}

// TestConsistent checks that a bundle with a route to an absent cluster, or with a cluster without
// endpoints, is not consistent.
func TestConsistent(t *testing.T) {
	good := resourcestest.Bundle(t, 1, "a")
	if err := good.Consistent(); err != nil {
		t.Error(err)
	}
	other := resourcestest.Bundle(t, 1, "b")
	for _, typeURL := range resources.Types {
		if good.With(typeURL, other[typeURL]).Consistent() == nil {
			t.Errorf("%s replaced: not noticed", typeURL)
		}
	}
	if _, err := resources.NewSet(1, []*cluster.Cluster{{Name: "a"}, {Name: "a"}}, resources.Set{}); err == nil {
		t.Error("a name twice: not noticed")
	}
}
