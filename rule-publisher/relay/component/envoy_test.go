// Package component tests the relay's builders and sources against the real programs on their other
// side: Envoy (SPILLWAY_ENVOY) and the Kubernetes API server (.spillway/bin).
package component

import (
	"strings"
	"testing"
	"text/template"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"spillway.dev/relay/internal/envoy"
	"spillway.dev/relay/internal/table"
	"spillway.dev/relay/internal/testkit"
)

var (
	must       = testkit.Must
	eventually = testkit.Eventually
)

// caller runs the Envoy of a service in cluster north. Its bootstrap contains exactly the routes
// and clusters that the relay would serve, so no relay is involved.
func caller(t *testing.T, network *table.Network, rules *table.Rules, tab table.Table, change ...func(*cluster.Cluster)) *testkit.Envoy {
	t.Helper()
	routes, err := envoy.OutboundRoutes(tab)
	must(t, err)
	clusters, assignments := envoy.Backends(network, rules.Denials())
	var described []string
	for i, c := range clusters {
		c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
		c.EdsClusterConfig, c.LoadAssignment = nil, assignments[i]
		for _, change := range change {
			change(c)
		}
		described = append(described, asJSON(t, c))
	}
	return startProxy(t, "testdata/caller.yaml", map[string]any{"Routes": asJSON(t, routes), "Clusters": described})
}

func asJSON(t *testing.T, message proto.Message) string {
	t.Helper()
	text, err := protojson.Marshal(message)
	must(t, err)
	return string(text)
}

func startProxy(t *testing.T, bootstrap string, values map[string]any) *testkit.Envoy {
	t.Helper()
	parsed, err := template.ParseFiles(bootstrap)
	must(t, err)
	var text strings.Builder
	must(t, parsed.Execute(&text, values))
	return testkit.StartEnvoy(t, text.String()).Live()
}
