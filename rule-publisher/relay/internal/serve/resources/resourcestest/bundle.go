// Package resourcestest makes bundles for tests.
package resourcestest

import (
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"spillway.dev/relay/internal/serve/resources"
)

// Bundle returns a bundle with the given clusters, in which all routes lead to the first.
func Bundle(t *testing.T, version uint64, names ...string) resources.Bundle {
	t.Helper()
	var clusters []*cluster.Cluster
	var assignments []*endpoint.ClusterLoadAssignment
	for _, name := range names {
		clusters = append(clusters, &cluster.Cluster{Name: name})
		assignments = append(assignments, &endpoint.ClusterLoadAssignment{ClusterName: name})
	}
	r := &route.RouteConfiguration{Name: "out", VirtualHosts: []*route.VirtualHost{{Name: "h", Routes: []*route.Route{{
		Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: names[0]}}}}}}}}
	cds, err1 := resources.NewSet(version, clusters, resources.Set{})
	eds, err2 := resources.NewSet(version, assignments, resources.Set{})
	rds, err3 := resources.NewSet(version, []*route.RouteConfiguration{r}, resources.Set{})
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return resources.Bundle{resources.ClusterType: cds, resources.EndpointType: eds, resources.RouteType: rds}
}
