package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/state"
	"spillway.dev/relay/internal/table"
	"spillway.dev/relay/internal/testkit"
)

const topology = `
clusters: [{name: north}, {name: south}]
links: [{source_cluster: north, destination_cluster: south, rtt_ms: 20}]
`

// byName declares a name that needs no server: localhost is in every host's own table.
const byName = `
cluster: north
services:
  - {service: shop, cluster: north, addresses: ["10.0.0.1:80"], names: ["localhost:8080"]}
`

func newDirectory(t *testing.T, folder, endpoints string) *Directory {
	t.Helper()
	d := &Directory{Cluster: "north", Counters: &count.Counters{}, Log: slog.New(slog.DiscardHandler),
		Files: &source.Files{Topology: filepath.Join(folder, "topology.yaml"), Endpoints: filepath.Join(folder, "endpoints.yaml")}}
	store, err := state.Open(filepath.Join(folder, "state"), "north")
	if err == nil {
		err = os.WriteFile(d.Files.Topology, []byte(topology), 0o600)
	}
	d.Store = store
	if err != nil {
		t.Fatal(err)
	}
	write(t, d, endpoints)
	return d
}

func write(t *testing.T, d *Directory, endpoints string) {
	t.Helper()
	testkit.Replace(t, d.Files.Endpoints, endpoints)
}

func addresses(n *table.Network) string {
	var out []string
	for _, service := range n.Services() {
		for _, tier := range n.Tiers(service) {
			for _, e := range tier.Endpoints {
				out = append(out, service+" in "+tier.Cluster+" "+e.Address.String())
			}
		}
	}
	return strings.Join(out, "; ")
}

// TestFilesAndNames checks that declared addresses and those of names are joined at the start. A
// valid new version of the file is passed on; an invalid one is counted and changes nothing.
func TestFilesAndNames(t *testing.T) {
	d := newDirectory(t, t.TempDir(), byName)
	ctx, cancel := context.WithCancel(t.Context())
	network, err := d.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const start = "shop in north 10.0.0.1:80; shop in north 127.0.0.1:8080"
	if got := addresses(network); got != start {
		t.Errorf("%q, want %q", got, start)
	}
	reported := make(chan string, 8)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.Run(ctx, func(n *table.Network) { reported <- addresses(n) })
	}()
	write(t, d, byName+"  - {service: shop, cluster: mars}\n")
	testkit.Eventually(t, "the bad version is counted", func() bool { return d.Counters.Get(count.FilesRefused) > 0 })
	write(t, d, byName+"  - {service: shop, cluster: south, addresses: ['10.0.1.1:80']}\n")
	if got := <-reported; got != start+"; shop in south 10.0.1.1:80" {
		t.Errorf("after the new version %q", got)
	}
	cancel()
	<-ended
}

// stalled is a disk on which every write blocks.
type stalled struct{ until <-chan struct{} }

func (s stalled) SaveFound([]byte) error     { <-s.until; return nil }
func (s stalled) LoadFound() ([]byte, error) { return nil, nil }

// TestAStalledDiskKeepsNoEndpoints checks that changes of endpoints are still passed on while the
// disk stalls, and that Run ends without waiting for the disk.
func TestAStalledDiskKeepsNoEndpoints(t *testing.T) {
	d := newDirectory(t, t.TempDir(), byName)
	d.Store = stalled{t.Context().Done()}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := d.Open(ctx)
	testkit.Must(t, err)
	reported := make(chan string, 8)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.Run(ctx, func(n *table.Network) { reported <- addresses(n) })
	}()
	for _, last := range []string{"10.0.1.1:80", "10.0.1.2:80", "10.0.1.3:80"} {
		write(t, d, byName+"  - {service: shop, cluster: south, addresses: ['"+last+"']}\n")
		select {
		case got := <-reported:
			if !strings.HasSuffix(got, last) {
				t.Errorf("told %q, want %s at the end", got, last)
			}
		case <-time.After(testkit.Patience):
			t.Fatalf("%s is not told", last)
		}
	}
	cancel()
	<-ended
}

// TestEveryWrongKeyIsTold checks that all wrong keys of the file are reported at once, and that
// nothing starts.
func TestEveryWrongKeyIsTold(t *testing.T) {
	d := newDirectory(t, t.TempDir(), `
cluster: north
services:
  - {service: shop, cluster: north, names: ["10.0.0.1:80", "shop.test", "_bad", "shop.test:99999", "a.test:1", "a.test:1"]}
dns: {refresh_seconds: 9999, server: nowhere}
kubernetes:
  - {cluster: mars, namespaces: [], port: "0", ip_family: ipv5, context: c}
  - {cluster: north, namespaces: [Shop, a, a], port: proxy, selector: "((", kubeconfig: /nonexistent}
  - {cluster: north, namespaces: [a], port: "70000"}
`)
	_, err := d.Open(t.Context())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"services[0].names[0]", "services[0].names[1]", "services[0].names[3]", "services[0].names[5]",
		"dns.refresh_seconds: 9999", `dns.server: "nowhere"`, `kubernetes[0].cluster: unknown cluster "mars"; clusters: north, south`,
		"kubernetes[0].namespaces: none", `kubernetes[0].port: "0"`, `kubernetes[0].ip_family: "ipv5"`, `kubernetes[0].context: "c"`,
		`kubernetes[1].namespaces[0]: "Shop"`, `kubernetes[1].namespaces[2]: "a"`, `kubernetes[1].selector: "(("`,
		`kubernetes[1].kubeconfig: "/nonexistent"`, `kubernetes[2].cluster: a second entry`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin: %v", want, err)
		}
	}
	write(t, d, "cluster: north\nservicse: []\nservices: [{service: shop, cluster: north, adresses: []}]\nkubernetes: [{clustr: x}]\n")
	_, err = d.Open(t.Context())
	for _, want := range []string{`unknown field "servicse"`, `services[0]: unknown field "adresses"`, `kubernetes[0]: unknown field "clustr"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin: %v", want, err)
		}
	}
}

// TestKeptOverARestart checks that endpoints found earlier are served again after a restart while
// their source is away.
func TestKeptOverARestart(t *testing.T) {
	folder := t.TempDir()
	key := namesKey(table.Place{Service: "shop", Cluster: "north"})
	before := newDirectory(t, folder, byName)
	found := table.Found{{Service: "shop", Cluster: "north"}: {{Address: netip.MustParseAddrPort("10.0.0.7:80"), Zone: "z"}}}
	before.sources = map[string]*running{key: {found: found}}
	before.keep()
	if !before.saves.Wait(testkit.Patience) {
		t.Fatal("the disk does not take what was found")
	}
	after := newDirectory(t, folder, strings.ReplaceAll(byName, "localhost", "name.invalid")+"dns: {server: '127.0.0.1:1'}\n")
	network, err := after.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := addresses(network), "shop in north 10.0.0.1:80; shop in north 10.0.0.7:80"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// readySource knows how many pods are ready.
type readySource struct{ pods map[string]table.Readiness }

func (s readySource) Run(ctx context.Context, _ func(table.Found)) { <-ctx.Done() }

func (s readySource) Readiness() map[string]table.Readiness { return s.pods }

// TestReadinessIsThatOfTheOwnCluster checks that only the source of the relay's own cluster counts,
// and that nothing is known once it is gone.
func TestReadinessIsThatOfTheOwnCluster(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	d := newDirectory(t, t.TempDir(), "cluster: north\n")
	defer d.ended.Wait()
	defer cancel()
	d.sources, d.events = map[string]*running{}, make(chan event)
	watching := func(pods uint32) planned {
		return planned{fmt.Sprint(pods), readySource{map[string]table.Readiness{"shop": {Pods: pods}}}}
	}
	if d.Readiness() != nil {
		t.Error("pods are known without a source")
	}
	d.apply(ctx, source.Inputs{}, map[string]planned{kubernetesKey("north"): watching(3), kubernetesKey("south"): watching(5)}, nil)
	if got := d.Readiness()["shop"].Pods; got != 3 {
		t.Errorf("%d pods, want the 3 of north", got)
	}
	d.apply(ctx, source.Inputs{}, map[string]planned{kubernetesKey("south"): watching(5)}, nil)
	if d.Readiness() != nil {
		t.Error("pods are known after their source has gone")
	}
}
