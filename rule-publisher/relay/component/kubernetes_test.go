package component

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/discovery"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/state"
	"spillway.dev/relay/internal/table"
)

// directory is a running discovery.Directory of cluster north, and the networks that it passed on.
type directory struct {
	t        *testing.T
	counters *count.Counters
	stop     func()

	mu    sync.Mutex
	last  *table.Network
	times int
}

func startDirectory(t *testing.T, folder, endpoints string) *directory {
	t.Helper()
	files := &source.Files{Topology: filepath.Join(folder, "topology.yaml"), Endpoints: filepath.Join(folder, "endpoints.yaml")}
	must(t, os.WriteFile(files.Topology, []byte(`
clusters: [{name: north}, {name: south}]
links: [{source_cluster: north, destination_cluster: south, rtt_ms: 20}]
`), 0o600))
	must(t, os.WriteFile(files.Endpoints, []byte(endpoints), 0o600))
	store, err := state.Open(filepath.Join(folder, "state"), "north")
	must(t, err)
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	d := &directory{t: t, counters: &count.Counters{}}
	ctx, cancel := context.WithCancel(context.Background())
	opened := &discovery.Directory{Cluster: "north", Files: files, Store: store, Counters: d.counters, Log: log}
	d.last, err = opened.Open(ctx)
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		opened.Run(ctx, func(n *table.Network) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.last = n
			d.times++
		})
	}()
	d.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(d.stop)
	return d
}

// changes returns how often the network changed.
func (d *directory) changes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.times
}

// sees returns the service's tiers as text: "north 10.0.0.1:80@zone, ... / south ...".
func (d *directory) sees(service string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var tiers []string
	for _, tier := range d.last.Tiers(service) {
		var endpoints []string
		for _, e := range tier.Endpoints {
			endpoints = append(endpoints, strings.TrimSuffix(e.Address.String()+"@"+e.Zone, "@"))
		}
		tiers = append(tiers, tier.Cluster+" "+strings.Join(endpoints, ", "))
	}
	return strings.Join(tiers, " / ")
}

func (d *directory) eventuallySees(service, want string) {
	d.t.Helper()
	eventually(d.t, fmt.Sprintf("%s is %q; it is %q", service, want, d.sees(service)), func() bool { return d.sees(service) == want })
}

func ptr[T any](value T) *T { return &value }

// pod returns an endpoint of a slice: ready, or with the conditions (ready, serving, terminating).
func pod(address, zone string, conditions ...bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}, Zone: &zone}
	if len(conditions) == 3 {
		e.Conditions = discoveryv1.EndpointConditions{Ready: &conditions[0], Serving: &conditions[1], Terminating: &conditions[2]}
	}
	return e
}

func sliceOf(name, service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  meta.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service, "mesh": "spillway"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: ptr("metrics"), Port: ptr(int32(9)), Protocol: ptr(core.ProtocolTCP)},
			{Name: ptr("proxy"), Port: ptr(int32(15006)), Protocol: ptr(core.ProtocolTCP)}}}
}

const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"

func (a *apiServer) create(slice *discoveryv1.EndpointSlice) {
	a.t.Helper()
	a.do("POST", slicesPath, slice)
}
func (a *apiServer) replace(slice *discoveryv1.EndpointSlice) {
	a.t.Helper()
	a.do("PUT", slicesPath+"/"+slice.Name, slice)
}

// combined has the own cluster's endpoints from Kubernetes, and another cluster's by the address of
// its gateway.
const combined = `
cluster: north
services:
  - {service: cart, cluster: south, addresses: ["10.9.0.1:80"]}
  - {service: fixed, cluster: north, addresses: ["10.8.0.1:80"]}
kubernetes:
  - {cluster: north, namespaces: [NAMESPACES], selector: mesh=spillway, port: proxy, kubeconfig: KUBECONFIG, context: here}
`

func combinedWith(kubeconfig string, namespaces ...string) string {
	return strings.NewReplacer("KUBECONFIG", kubeconfig, "NAMESPACES", strings.Join(namespaces, ", ")).Replace(combined)
}

// TestKubernetes runs against a real API server, with no rights beyond those of
// kubernetes/rbac.yaml. Ready endpoints are served with their zone. A service that loses its last
// endpoint falls to the next cluster. The loss of the API server changes nothing, also across a
// restart of the relay. A storm of changes becomes few changes of the network.
func TestKubernetes(t *testing.T) {
	api := startAPIServer(t)
	api.namespace("spillway")
	api.namespace("shop")
	api.namespace("secret")
	api.apply("../kubernetes/rbac.yaml")
	kubeconfig, token := api.kubeconfig("spillway", "spillway-relay")
	for _, path := range []string{"/api/v1/namespaces/shop/services", "/apis/discovery.k8s.io/v1/endpointslices",
		"/apis/discovery.k8s.io/v1/namespaces/secret/endpointslices", "/api/v1/namespaces/shop/secrets"} {
		if status, _ := api.ask(token, "GET", path, nil); status != 403 {
			t.Fatalf("%s: %d, want 403: the role is not the least", path, status)
		}
	}
	api.create(sliceOf("cart-1", "cart", pod("10.0.0.1", "z1"), pod("10.0.0.2", "z2", false, true, true), pod("10.0.0.3", "z1", false, false, false)))
	api.create(sliceOf("fixed-1", "fixed", pod("10.0.0.9", "z1")))
	eventually(t, "the API server knows the role", func() bool {
		status, _ := api.ask(token, "GET", "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", nil)
		return status == 200
	})
	folder := t.TempDir()
	d := startDirectory(t, folder, combinedWith(kubeconfig, "shop"))
	if got := d.sees("cart"); got != "north 10.0.0.1:15006@z1 / south 10.9.0.1:80" {
		t.Errorf("at the start cart is %q", got)
	}
	if got := d.sees("fixed"); got != "north 10.8.0.1:80" {
		t.Errorf("a declared service is %q, want what is declared", got)
	}
	api.create(sliceOf("cart-2", "cart", pod("10.0.0.4", "z2")))
	d.eventuallySees("cart", "north 10.0.0.1:15006@z1, 10.0.0.4:15006@z2 / south 10.9.0.1:80")
	t.Run("last endpoints leave", func(t *testing.T) { lastEndpointsLeave(api, d) })
	t.Run("storm", func(t *testing.T) { storm(t, api, d) })
	t.Run("API server away", func(t *testing.T) { apiServerAway(t, api, d, folder, combinedWith(kubeconfig, "shop")) })
	t.Run("forbidden namespace", func(t *testing.T) {
		other := startDirectory(t, t.TempDir(), combinedWith(kubeconfig, "secret"))
		eventually(t, "the refusal is counted", func() bool { return other.counters.Get(count.KubernetesErrors) > 0 })
		if got := other.sees("cart"); got != "south 10.9.0.1:80" {
			t.Errorf("cart is %q, want the other cluster's", got)
		}
	})
}

// lastEndpointsLeave checks that when no endpoint is ready, those that still serve while they
// terminate are used. When there is none at all, the next cluster is used.
func lastEndpointsLeave(api *apiServer, d *directory) {
	api.replace(sliceOf("cart-2", "cart"))
	api.replace(sliceOf("cart-1", "cart", pod("10.0.0.1", "z1", false, true, true), pod("10.0.0.2", "z2", false, false, true)))
	d.eventuallySees("cart", "north 10.0.0.1:15006@z1 / south 10.9.0.1:80")
	api.replace(sliceOf("cart-1", "cart", pod("10.0.0.1", "z1", false, false, true)))
	d.eventuallySees("cart", "south 10.9.0.1:80")
	api.replace(sliceOf("cart-1", "cart", pod("10.0.0.1", "z1")))
	d.eventuallySees("cart", "north 10.0.0.1:15006@z1 / south 10.9.0.1:80")
}

func storm(t *testing.T, api *apiServer, d *directory) {
	const changes = 300
	before, begin := d.changes(), time.Now()
	for i := range changes {
		api.replace(sliceOf("cart-2", "cart", pod(fmt.Sprintf("10.1.%d.%d", i/200, 1+i%200), "z2")))
	}
	d.eventuallySees("cart", "north 10.0.0.1:15006@z1, 10.1.1.100:15006@z2 / south 10.9.0.1:80")
	seen := d.changes() - before
	t.Logf("%d changes of slices became %d of the network", changes, seen)
	if most := max(changes/10, int(time.Since(begin)/time.Second)+2); seen > most {
		t.Errorf("%d changes of slices became %d of the network", changes, seen)
	}
}

func apiServerAway(t *testing.T, api *apiServer, d *directory, folder, endpoints string) {
	want := d.sees("cart")
	before, errors := d.changes(), d.counters.Get(count.KubernetesErrors)
	api.kill()
	eventually(t, "the loss is counted", func() bool { return d.counters.Get(count.KubernetesErrors) > errors })
	if d.sees("cart") != want || d.changes() != before {
		t.Errorf("without the API server cart is %q, was %q", d.sees("cart"), want)
	}
	d.stop()
	again := startDirectory(t, folder, endpoints)
	if got := again.sees("cart"); got != want {
		t.Errorf("after a restart without the API server cart is %q, was %q", got, want)
	}
	api.start()
	api.create(sliceOf("cart-3", "cart", pod("10.0.0.5", "z3")))
	eventually(t, "what is new since the API server is back", func() bool {
		return slices.Contains(strings.Fields(strings.ReplaceAll(again.sees("cart"), ",", "")), "10.0.0.5:15006@z3")
	})
}
