package envoy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/envoy"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/table"
)

var update = flag.Bool("update", false, "write the golden file anew")

const golden = "../../../../contracts/golden"

// goldenCluster is the cluster whose relay reads the golden endpoints.yaml.
const goldenCluster = "west"

// published returns the golden proposal as the publisher writes it into the cluster's key.
func published(t *testing.T) *spillwayv1.Ruleset {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(golden, "5_ruleset.json"))
	if err != nil {
		t.Fatal(err)
	}
	ruleset := &spillwayv1.Ruleset{}
	if err := protojson.Unmarshal(content, ruleset); err != nil {
		t.Fatal(err)
	}
	ruleset.Version = 1
	ruleset.Rules = slices.DeleteFunc(ruleset.Rules, func(r *spillwayv1.Rule) bool { return r.GetSourceCluster() != goldenCluster })
	return ruleset
}

// TestGoldenRoutes checks that the golden ruleset yields exactly the golden Envoy routes, clusters
// and endpoints (contracts/golden/6_envoy_routes.json, which -update rewrites).
func TestGoldenRoutes(t *testing.T) {
	files := source.Files{Topology: filepath.Join(golden, "topology.yaml"), Endpoints: filepath.Join(golden, "endpoints.yaml")}
	inputs, err := files.Load()
	if err != nil {
		t.Fatal(err)
	}
	network, err := table.NewNetwork(goldenCluster, inputs.Topology, inputs.Endpoints, nil)
	if err != nil {
		t.Fatal(err)
	}
	ruleset := published(t)
	rules, err := table.ParseRules(ruleset, goldenCluster)
	if err != nil {
		t.Fatal(err)
	}
	services := map[string]any{}
	for _, service := range network.Services() {
		tab := table.Build(service, network, rules, ruleset.GetCreatedAt().AsTime())
		inbound, err := envoy.InboundRoutes(tab)
		if err != nil {
			t.Fatal(err)
		}
		outbound, err := envoy.OutboundRoutes(tab)
		if err != nil {
			t.Fatal(err)
		}
		services[service] = map[string]any{"inbound": plain(t, inbound), "outbound": plain(t, outbound)}
	}
	clusters, assignments := envoy.Backends(network, rules.Denials())
	got, err := json.MarshalIndent(map[string]any{"cluster": goldenCluster, "ruleset_version": ruleset.Version, "services": services,
		"clusters": plainAll(t, clusters), "endpoints": plainAll(t, assignments)}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, filepath.Join(golden, "6_envoy_routes.json"), append(got, '\n'))
}

func compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is built now; look at the difference, then go test ./internal/envoy -update\n%s", path, got)
	}
}

// plain returns the message's JSON as plain values, because the spacing of protojson varies on
// purpose.
func plain(t *testing.T, message proto.Message) (value any) {
	t.Helper()
	encoded, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func plainAll[M proto.Message](t *testing.T, messages []M) (values []any) {
	for _, message := range messages {
		values = append(values, plain(t, message))
	}
	return values
}
