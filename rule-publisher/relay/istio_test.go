package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/testkit"
)

const meshURI = "spiffe://cluster.local/ns/shop/sa/"

// patch of an EnvoyFilter.
type patch struct {
	ApplyTo string
	Patch   struct {
		Operation string
		Value     map[string]any
	}
}

// patches of the chart's EnvoyFilter, with the relay at the port and its authority.
func patches(t *testing.T, relayPort int) []patch {
	t.Helper()
	content, err := os.ReadFile("testdata/istio/envoyfilter.yaml")
	must(t, err)
	text := strings.NewReplacer("RELAY_AUTHORITY", strings.ReplaceAll(string(authority.PEM), "\n", `\n`),
		"spillway-relay.spillway.svc.cluster.local, port_value: 18000", fmt.Sprintf("127.0.0.1, port_value: %d", relayPort)).
		Replace(string(content))
	var filter struct {
		Spec struct{ ConfigPatches []patch }
	}
	must(t, yaml.Unmarshal([]byte(text), &filter))
	return filter.Spec.ConfigPatches
}

// startSidecar is an Envoy that starts as Istio's do, whose agent has the certificate, with the EnvoyFilter
// merged in as istiod does: clusters added, connection managers merged as protobuf.
func startSidecar(t *testing.T, mesh *identitytest.Authority, uri string, relayPort int) *testkit.Envoy {
	t.Helper()
	folder := t.TempDir()
	serveSecrets(t, filepath.Join(folder, "socket"), mesh, mesh.Issue(uri, time.Hour, x509.ExtKeyUsageClientAuth))
	outbound := &manager.HttpConnectionManager{}
	fromYAML(t, "testdata/istio/manager.yaml", outbound)
	var clusters []any
	for _, p := range patches(t, relayPort) {
		switch p.ApplyTo + " " + p.Patch.Operation {
		case "CLUSTER ADD":
			p.Patch.Value["@type"] = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
			clusters = append(clusters, p.Patch.Value)
		case "NETWORK_FILTER MERGE":
			merged := &manager.HttpConnectionManager{}
			fromValue(t, p.Patch.Value["typed_config"], merged)
			proto.Merge(outbound, merged)
		default:
			t.Fatalf("%s %s: the test knows nothing of it", p.ApplyTo, p.Patch.Operation)
		}
	}
	write(t, filepath.Join(folder, "clusters.json"), clusters)
	write(t, filepath.Join(folder, "listeners.json"), []any{listenerOf(t, outbound)})
	bootstrap, err := os.ReadFile("testdata/istio/bootstrap.yaml")
	must(t, err)
	return testkit.StartEnvoy(t, strings.ReplaceAll(string(bootstrap), "FOLDER", folder)).Live()
}

// fromYAML reads a file into a message.
func fromYAML(t *testing.T, path string, into proto.Message) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	var value any
	must(t, yaml.Unmarshal(content, &value))
	fromValue(t, value, into)
}

// fromValue takes what a typed_config says.
func fromValue(t *testing.T, value any, into proto.Message) {
	t.Helper()
	encoded, err := yaml.Marshal(value)
	must(t, err)
	encoded, err = yaml.YAMLToJSON(encoded)
	must(t, err)
	packed := &anypb.Any{}
	must(t, protojson.Unmarshal(encoded, packed))
	must(t, packed.UnmarshalTo(into))
}

func listenerOf(t *testing.T, outbound *manager.HttpConnectionManager) any {
	t.Helper()
	packed, err := anypb.New(outbound)
	must(t, err)
	encoded, err := protojson.Marshal(&listener.Filter{Name: "envoy.filters.network.http_connection_manager",
		ConfigType: &listener.Filter_TypedConfig{TypedConfig: packed}})
	must(t, err)
	var filter any
	must(t, yaml.Unmarshal(encoded, &filter))
	return map[string]any{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "outbound",
		"address":       map[string]any{"socket_address": map[string]any{"address": "127.0.0.1", "port_value": 0}},
		"filter_chains": []any{map[string]any{"filters": []any{filter}}}}
}

func write(t *testing.T, path string, resources []any) {
	t.Helper()
	encoded, err := yaml.Marshal(map[string]any{"resources": resources})
	must(t, err)
	encoded, err = yaml.YAMLToJSON(encoded)
	must(t, err)
	must(t, os.WriteFile(path, encoded, 0o600))
}

// meshBackend answers with its name to whoever shows a certificate of the mesh, and shows shop's.
func meshBackend(t *testing.T, mesh *identitytest.Authority, name string) int {
	t.Helper()
	shown := mesh.Issue(meshURI+"shop", time.Hour, x509.ExtKeyUsageServerAuth)
	pair, err := tls.X509KeyPair(shown.Cert, shown.Key)
	must(t, err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(mesh.PEM)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS.ServerName != "outbound_.8080_._.shop.shop.svc.cluster.local" {
			http.Error(w, r.TLS.ServerName, http.StatusMisdirectedRequest)
			return
		}
		io.WriteString(w, name) //nolint:errcheck // the asker is gone
	})}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert}
	go server.Serve(tls.NewListener(plain, config)) //nolint:errcheck // closed by the test
	t.Cleanup(func() { server.Close() })
	return plain.Addr().(*net.TCPAddr).Port
}

// meshRelay lets the mesh's sidecars of namespace shop in.
func meshRelay(t *testing.T, conf config, mesh *identitytest.Authority) *running {
	t.Helper()
	var err error
	conf.Mesh, err = identity.ParseMesh(meshURI + "{service}")
	must(t, err)
	must(t, os.WriteFile(conf.XDS.ClientCA, append(authority.PEM, mesh.PEM...), 0o600))
	return startRelay(t, conf)
}

// A real Envoy that is a sidecar of Istio, with the chart's EnvoyFilter merged in, splits requests by the ruleset over
// the mesh's own mutual TLS, is placed and acknowledges by the name that its certificate gives it, and keeps
// its routes when the relay is gone.
func TestRealSidecarOfIstioFollowsRulesets(t *testing.T) {
	mesh := identitytest.NewAuthority()
	server := startNATS(t, t.TempDir(), 0)
	conf := testConfig(t, server.ClientURL())
	writeEndpoints(t, conf, meshBackend(t, mesh, "north"), meshBackend(t, mesh, "south"), meshBackend(t, mesh, "far"))
	p := newPublisher(t, server)
	r := meshRelay(t, conf, mesh)
	e := startSidecar(t, mesh, meshURI+"gate", portOf(t, r.listener.Addr().String()))
	// A sidecar does not wait for long before it opens its listeners.
	eventually(t, "routes and endpoints", func() bool { return e.Call("outbound", "shop", "GET", "/items/7").Status == http.StatusOK })
	if got := e.Shares(20, "shop", "/items/7"); got["north"] != 20 {
		t.Errorf("local-first went to %v", got)
	}
	p.put(ruleset(12, time.Minute, 2500, 5000, 2500))
	p.ack(func(a *spillwayv1.Acknowledgement) bool {
		return a.GetRulesetVersion() == 12 && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_ACK &&
			a.GetEnvoy() == "north/gate/gate-7d9f-x2x.shop"
	})
	eventually(t, "the weights are in the config dump", func() bool { return e.RoutesSay(`"weight": 2500`) })
	if placed := r.status().Placed; placed["gate"] != 1 || len(placed) != 1 {
		t.Errorf("placed %v, want one gate", placed)
	}
	r.stop()
	if got := e.Shares(400, "shop:8080", "/items/7"); got["north"] < 50 || got["south"] < 130 || got["far"] < 50 {
		t.Errorf("weights 2500, 5000, 2500 gave %v", got)
	}
}

// A sidecar of a namespace that is not let in gets no routes, whatever its node says.
func TestASidecarOfAnotherNamespaceIsRefused(t *testing.T) {
	mesh := identitytest.NewAuthority()
	r := meshRelay(t, testConfig(t, "nats://127.0.0.1:1"), mesh)
	e := startSidecar(t, mesh, "spiffe://cluster.local/ns/other/sa/gate", portOf(t, r.listener.Addr().String()))
	eventually(t, "the sidecar is refused", func() bool { return r.status().Counters["streams_refused_identity"] >= 1 })
	if got := e.Call("outbound", "shop", "GET", "/items/7"); got.Status != http.StatusNotFound {
		t.Errorf("status %d, want 404: no routes", got.Status)
	}
	if connected := r.status().Envoys; len(connected) != 0 {
		t.Errorf("connected %v, want nobody", connected)
	}
}
