package envoy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/testkit"
)

const meshURI = "spiffe://cluster.local/ns/shop/sa/"

// patch is one patch of an EnvoyFilter.
type patch struct {
	ApplyTo string
	Match   struct {
		RouteConfiguration struct {
			Vhost struct {
				Name  string
				Route struct{ Action, Name string }
			}
		}
	}
	Patch struct {
		Operation string
		Value     map[string]any
	}
}

// patches returns the patches of the chart's EnvoyFilters for a relay at the port, with the tests'
// authority. The folder has Istio's configuration of extensions and the socket of the health check.
func patches(t *testing.T, relayPort int, folder string) []patch {
	t.Helper()
	content, err := os.ReadFile("testdata/istio/envoyfilter.yaml")
	testkit.Must(t, err)
	text := strings.NewReplacer("RELAY_AUTHORITY", strings.ReplaceAll(string(harness.Authority.PEM), "\n", `\n`),
		"spillway-relay.spillway.svc.cluster.local, port_value: 18000", fmt.Sprintf("127.0.0.1, port_value: %d", relayPort),
		"@spillway-ready", folder+"/ready", "ads: {}, initial_fetch_timeout: 0s", "path_config_source: {path: "+folder+"/extensions.json}").
		Replace(string(content))
	var all []patch
	for _, document := range strings.Split(text, "\n---\n") {
		var filter struct {
			Spec struct{ ConfigPatches []patch }
		}
		testkit.Must(t, yaml.Unmarshal([]byte(document), &filter))
		all = append(all, filter.Spec.ConfigPatches...)
	}
	return all
}

// startSidecar starts an Envoy as Istio starts its sidecars. Its agent has the certificate. The
// EnvoyFilters are merged in as by istiod: clusters and listeners are added, routes are merged as
// protobuf.
func startSidecar(t *testing.T, mesh *identitytest.Authority, uri string, relayPort int) *testkit.Envoy {
	t.Helper()
	folder := t.TempDir()
	serveSecrets(t, filepath.Join(folder, "socket"), mesh, mesh.Issue(uri, time.Hour, x509.ExtKeyUsageClientAuth))
	outbound := &manager.HttpConnectionManager{}
	fromYAML(t, "testdata/istio/manager.yaml", outbound)
	clusters, listeners := istiosClusters(t), []any{}
	for _, p := range patches(t, relayPort, folder) {
		switch p.ApplyTo + " " + p.Patch.Operation {
		case "CLUSTER ADD":
			p.Patch.Value["@type"] = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
			clusters = append(clusters, p.Patch.Value)
		case "LISTENER ADD":
			p.Patch.Value["@type"] = "type.googleapis.com/envoy.config.listener.v3.Listener"
			listeners = append(listeners, p.Patch.Value)
		case "HTTP_ROUTE MERGE":
			mergeRoutes(t, outbound.GetRouteConfig(), p)
		default:
			t.Fatalf("%s %s: the test knows nothing of it", p.ApplyTo, p.Patch.Operation)
		}
	}
	write(t, filepath.Join(folder, "extensions.json"), []any{seen})
	write(t, filepath.Join(folder, "clusters.json"), clusters)
	write(t, filepath.Join(folder, "listeners.json"), append(listeners, listenerOf(t, outbound)))
	bootstrap, err := os.ReadFile("testdata/istio/bootstrap.yaml")
	testkit.Must(t, err)
	return testkit.StartEnvoy(t, strings.ReplaceAll(string(bootstrap), "FOLDER", folder)).Live()
}

// mergeRoutes does what istiod does with a patch of routes
// (pilot/pkg/networking/core/envoyfilter/rc_patch.go).
func mergeRoutes(t *testing.T, config *route.RouteConfiguration, p patch) {
	t.Helper()
	merged := 0
	for _, host := range config.GetVirtualHosts() {
		if host.GetName() != p.Match.RouteConfiguration.Vhost.Name {
			continue
		}
		for _, r := range host.GetRoutes() {
			wanted := p.Match.RouteConfiguration.Vhost.Route
			if r.GetRoute() == nil || wanted.Action != "ROUTE" || (wanted.Name != "" && wanted.Name != r.GetName()) {
				continue
			}
			value := &route.Route{}
			encoded, err := yaml.Marshal(p.Patch.Value)
			testkit.Must(t, err)
			encoded, err = yaml.YAMLToJSON(encoded)
			testkit.Must(t, err)
			testkit.Must(t, protojson.Unmarshal(encoded, value))
			proto.Merge(r, value)
			merged++
		}
	}
	if merged == 0 {
		t.Fatalf("no route of %s", p.Match.RouteConfiguration.Vhost.Name)
	}
}

// istiosClusters returns the clusters to which the routes of testdata/istio/manager.yaml lead. Each
// has a plaintext backend of its own.
func istiosClusters(t *testing.T) []any {
	t.Helper()
	var all []any
	for name, answer := range map[string]string{"outbound|8080||shop.shop.svc.cluster.local": "istio",
		"outbound|8080||ledger.shop.svc.cluster.local": "ledger", "PassthroughCluster": "passthrough"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, answer) //nolint:errcheck // the asker is gone
		}))
		t.Cleanup(server.Close)
		address := map[string]any{"address": "127.0.0.1", "port_value": server.Listener.Addr().(*net.TCPAddr).Port}
		endpoint := map[string]any{"endpoint": map[string]any{"address": map[string]any{"socket_address": address}}}
		all = append(all, map[string]any{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": name, "type": "STATIC",
			"load_assignment": map[string]any{"cluster_name": name, "endpoints": []any{map[string]any{"lb_endpoints": []any{endpoint}}}}})
	}
	return all
}

// seen is the extension that the test's istiod delivers under the filter's name. It counts requests
// whose route has the relay's metadata.
var seen = map[string]any{"@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
	"name": "extensions.istio.io/trafficextension/shop.spillway-gate-outbound~istio-translated-wasmplugin",
	"typed_config": map[string]any{"@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC", "shadow_rules_stat_prefix": "seen",
		"shadow_rules": map[string]any{"policies": map[string]any{"relay": map[string]any{
			"principals": []any{map[string]any{"any": true}},
			"permissions": []any{map[string]any{"sourced_metadata": map[string]any{"metadata_source": "ROUTE", "metadata_matcher": map[string]any{
				"filter": "spillway", "path": []any{map[string]any{"key": "ruleset_version"}}, "value": map[string]any{"present_match": true}}}}},
		}}}}}

// fromYAML reads a file into a message.
func fromYAML(t *testing.T, path string, into proto.Message) {
	t.Helper()
	content, err := os.ReadFile(path)
	testkit.Must(t, err)
	var value any
	testkit.Must(t, yaml.Unmarshal(content, &value))
	fromValue(t, value, into)
}

// fromValue converts the value of a typed_config to a message.
func fromValue(t *testing.T, value any, into proto.Message) {
	t.Helper()
	encoded, err := yaml.Marshal(value)
	testkit.Must(t, err)
	encoded, err = yaml.YAMLToJSON(encoded)
	testkit.Must(t, err)
	packed := &anypb.Any{}
	testkit.Must(t, protojson.Unmarshal(encoded, packed))
	testkit.Must(t, packed.UnmarshalTo(into))
}

func listenerOf(t *testing.T, outbound *manager.HttpConnectionManager) any {
	t.Helper()
	packed, err := anypb.New(outbound)
	testkit.Must(t, err)
	encoded, err := protojson.Marshal(&listener.Filter{Name: "envoy.filters.network.http_connection_manager",
		ConfigType: &listener.Filter_TypedConfig{TypedConfig: packed}})
	testkit.Must(t, err)
	var filter any
	testkit.Must(t, yaml.Unmarshal(encoded, &filter))
	return map[string]any{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "outbound",
		"address":       map[string]any{"socket_address": map[string]any{"address": "127.0.0.1", "port_value": 0}},
		"filter_chains": []any{map[string]any{"filters": []any{filter}}}}
}

func write(t *testing.T, path string, resources []any) {
	t.Helper()
	encoded, err := yaml.Marshal(map[string]any{"resources": resources})
	testkit.Must(t, err)
	encoded, err = yaml.YAMLToJSON(encoded)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(path, encoded, 0o600))
}

// meshBackend answers with its name to every client that shows a certificate of the mesh. It shows
// shop's certificate itself.
func meshBackend(t *testing.T, mesh *identitytest.Authority, name string) int {
	t.Helper()
	shown := mesh.Issue(meshURI+"shop", time.Hour, x509.ExtKeyUsageServerAuth)
	pair, err := tls.X509KeyPair(shown.Cert, shown.Key)
	testkit.Must(t, err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(mesh.PEM)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS.ServerName != "outbound_.8080_._.shop.shop.svc.cluster.local" {
			http.Error(w, r.TLS.ServerName, http.StatusMisdirectedRequest)
			return
		}
		answer := name
		switch r.URL.Path {
		case "/slow":
			time.Sleep(time.Second)
		case "/host":
			answer = r.Host
		}
		io.WriteString(w, answer) //nolint:errcheck // the asker is gone
	})}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert}
	go server.Serve(tls.NewListener(plain, config)) //nolint:errcheck // closed by the test
	t.Cleanup(func() { server.Close() })
	return plain.Addr().(*net.TCPAddr).Port
}

// meshRelay starts a relay that admits the mesh's sidecars of namespace shop.
func meshRelay(t *testing.T, conf relay.Config, mesh *identitytest.Authority) *harness.Relay {
	t.Helper()
	var err error
	conf.Mesh, err = identity.ParseMesh(meshURI + "{service}")
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(conf.XDS.ClientCA, append(harness.Authority.PEM, mesh.PEM...), 0o600))
	return harness.StartRelay(t, conf)
}

// sidecarOf starts a sidecar of gate in a mesh with shop in three clusters, with the relay and the
// publisher that it needs.
func sidecarOf(t *testing.T, uri string) (*testkit.Envoy, *harness.Relay, *harness.Publisher) {
	t.Helper()
	mesh := identitytest.NewAuthority()
	server := harness.StartNATS(t, t.TempDir(), 0)
	conf := harness.Config(t, server.ClientURL())
	harness.WriteEndpoints(t, conf, meshBackend(t, mesh, "north"), meshBackend(t, mesh, "south"), meshBackend(t, mesh, "far"))
	p := harness.NewPublisher(t, server)
	r := meshRelay(t, conf, mesh)
	return startSidecar(t, mesh, uri, harness.PortOf(t, r.XDSAddr())), r, p
}

func relayed(e *testkit.Envoy) func() bool {
	return func() bool { return e.Call("outbound", "shop", "GET", "/items/7").Body == "north" }
}

// TestRealSidecarOfIstioFollowsRulesets checks a real Envoy that is a sidecar of Istio, with the
// chart's EnvoyFilters merged in. It splits requests by the ruleset over the mesh's own mutual TLS.
// It is placed, and its acknowledgements are stored, under the service's name in its certificate.
// It keeps its routes when the relay is gone.
func TestRealSidecarOfIstioFollowsRulesets(t *testing.T) {
	e, r, p := sidecarOf(t, meshURI+"gate")
	testkit.Eventually(t, "routes and endpoints", relayed(e))
	if got := e.Shares(20, "shop", "/items/7"); got["north"] != 20 {
		t.Errorf("local-first went to %v", got)
	}
	p.Put(harness.Ruleset(12, time.Minute, 2500, 5000, 2500))
	p.Ack(func(a *spillwayv1.Acknowledgement) bool {
		return a.GetRulesetVersion() == 12 && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_ACK &&
			a.GetEnvoy() == "north/gate/gate-7d9f-x2x.shop"
	})
	testkit.Eventually(t, "the weights are in the config dump", func() bool { return e.RoutesSay(`"weight": 2500`) })
	if placed := r.Status().Placed; placed["gate"] != 1 || len(placed) != 1 {
		t.Errorf("placed %v, want one gate", placed)
	}
	r.Stop()
	if got := e.Shares(400, "shop:8080", "/items/7"); got["north"] < 50 || got["south"] < 130 || got["far"] < 50 {
		t.Errorf("weights 2500, 5000, 2500 gave %v", got)
	}
}

// TestASidecarCallsByAnyNameAndUnknownHostsStayIstios checks that the relay's routes apply to every
// name that Istio has for a service. The service sees the name that its caller used. Requests to
// hosts that Spillway does not know go where Istio sends them.
func TestASidecarCallsByAnyNameAndUnknownHostsStayIstios(t *testing.T) {
	e, _, _ := sidecarOf(t, meshURI+"gate")
	testkit.Eventually(t, "routes and endpoints", relayed(e))
	for _, name := range []string{"shop", "shop.shop", "shop.shop.svc", "shop.shop.svc.cluster.local"} {
		for _, host := range []string{name, name + ":8080"} {
			if got := e.Call("outbound", host, "GET", "/items/7"); got.Body != "north" {
				t.Errorf("%s: %d %s", host, got.Status, got.Body)
			}
			if got := e.Call("outbound", host, "GET", "/host"); got.Body != host {
				t.Errorf("%s was told to shop as %s", host, got.Body)
			}
		}
	}
	for host, answer := range map[string]string{"ledger": "ledger", "ledger.shop.svc.cluster.local:8080": "ledger",
		"api.example.com": "passthrough", "shop.other.svc.cluster.local:8080": "passthrough"} {
		if got := e.Call("outbound", host, "GET", "/items/7"); got.Body != answer {
			t.Errorf("%s: %d %s, want %s", host, got.Status, got.Body, answer)
		}
	}
}

// TestAVirtualServiceOfASidecarKeepsItsTimeouts checks that the timeout of a VirtualService ends a
// request that the relay's routes would not end. Answers that the VirtualService itself gives stay.
func TestAVirtualServiceOfASidecarKeepsItsTimeouts(t *testing.T) {
	e, _, _ := sidecarOf(t, meshURI+"gate")
	testkit.Eventually(t, "routes and endpoints", relayed(e))
	if got := e.Call("outbound", "shop", "GET", "/slow"); got.Status != http.StatusGatewayTimeout || got.Took > 900*time.Millisecond {
		t.Errorf("status %d after %v, want 504 after 200 ms", got.Status, got.Took)
	}
	if got := e.Call("outbound", "shop", "GET", "/gone"); got.Status != http.StatusGone {
		t.Errorf("status %d, want 410", got.Status)
	}
}

// TestTheFilterOfASidecarIsBesideTheRelaysRoutes checks that the filter sees the relay's routes,
// whose version its spans carry. For these routes, Istio's own listener does not run it again.
func TestTheFilterOfASidecarIsBesideTheRelaysRoutes(t *testing.T) {
	e, _, p := sidecarOf(t, meshURI+"gate")
	testkit.Eventually(t, "routes and endpoints", relayed(e))
	p.Put(harness.Ruleset(12, time.Minute, 10000, 0, 0))
	testkit.Eventually(t, "version 12", func() bool { return e.RoutesSay(`"ruleset_version": 12`) })
	before := e.Stat("http.spillway-outbound.rbac.seen.shadow_allowed")
	e.Shares(5, "shop", "/items/7")
	if after := e.Stat("http.spillway-outbound.rbac.seen.shadow_allowed"); after != max(before, 0)+5 {
		t.Errorf("seen beside the relay's routes: %d, then %d; want 5 more", before, after)
	}
	for host, want := range map[string]string{"shop": "", "ledger": "istio"} {
		if got := filterOf(t, e, host); got != want {
			t.Errorf("%s: Istio's listener ran the filter: %q, want %q", host, got, want)
		}
	}
}

// filterOf returns what the replacement for the filter reports in Istio's own listener.
func filterOf(t *testing.T, e *testkit.Envoy, host string) string {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+e.Listener("outbound")+"/items/7", nil)
	testkit.Must(t, err)
	request.Host = host
	response, err := http.DefaultClient.Do(request)
	testkit.Must(t, err)
	response.Body.Close()
	return response.Header.Get("x-filter-of")
}

// TestASidecarOfAnotherNamespaceIsRefused checks that a sidecar of a namespace that is not admitted
// gets no routes, whatever its node says. Its calls go where Istio sends them.
func TestASidecarOfAnotherNamespaceIsRefused(t *testing.T) {
	e, r, _ := sidecarOf(t, "spiffe://cluster.local/ns/other/sa/gate")
	testkit.Eventually(t, "the sidecar is refused", func() bool { return r.Status().Counters["streams_refused_identity"] >= 1 })
	if got := e.Call("outbound", "shop", "GET", "/items/7"); got.Status != http.StatusOK || got.Body != "istio" {
		t.Errorf("%d %s, want Istio's own cluster: no routes of the relay", got.Status, got.Body)
	}
	if connected := r.Status().Envoys; len(connected) != 0 {
		t.Errorf("connected %v, want nobody", connected)
	}
}
