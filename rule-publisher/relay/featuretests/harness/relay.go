package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/signing/signingtest"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/testkit"
)

// Authority signs every certificate of the tests unless a test says otherwise.
var Authority = identitytest.NewAuthority()

// PublisherKey signs every ruleset of the tests unless a test says otherwise.
var PublisherKey = signingtest.NewKey()

// Topology is the topology file of the tests' relays.
const Topology = `
clusters: [{name: north, region: r1}, {name: south, region: r2}, {name: far, region: r3}]
links:
  - {source_cluster: north, destination_cluster: south, rtt_ms: 20}
  - {source_cluster: north, destination_cluster: far, rtt_ms: 80}
`

// Endpoints is the endpoints file of the tests' relays.
const Endpoints = `
cluster: north
services:
  - {service: shop, cluster: far, addresses: ["127.0.0.1:9103"]}
  - {service: shop, cluster: north, addresses: ["127.0.0.1:9101"]}
  - {service: shop, cluster: south, addresses: ["127.0.0.1:9102"]}
  - {service: stock, cluster: south, addresses: ["127.0.0.1:9202"]}
`

// Relay is a relay that runs inside the test.
type Relay struct {
	*relay.Relay
	Config relay.Config
	Stop   func() // ends it, and returns when it has ended
	t      *testing.T
}

// Start starts a NATS server, a publisher and a relay of north.
func Start(t *testing.T) (*Publisher, *Relay) {
	t.Helper()
	server := StartNATS(t, t.TempDir(), 0)
	return NewPublisher(t, server), StartRelay(t, Config(t, server.ClientURL()))
}

// Config returns the configuration of relay-0 of north, with files and keys of the test.
func Config(t *testing.T, natsURL string) relay.Config {
	t.Helper()
	folder := t.TempDir()
	conf := relay.Config{Cluster: "north", Relay: "relay-0", NATS: source.NATS{URL: natsURL}, Identity: identitytest.Identity, XDSListen: "127.0.0.1:0", HealthListen: "127.0.0.1:0",
		StateDir: filepath.Join(folder, "state"), Topology: filepath.Join(folder, "topology.yaml"),
		Endpoints: filepath.Join(folder, "endpoints.yaml")}
	conf.RulesetKeys = filepath.Join(folder, "keys.pem")
	testkit.Must(t, os.WriteFile(conf.RulesetKeys, PublisherKey.PEM, 0o600))
	testkit.Must(t, os.WriteFile(conf.Topology, []byte(Topology), 0o600))
	testkit.Must(t, os.WriteFile(conf.Endpoints, []byte(Endpoints), 0o600))
	var err error
	conf.XDS, err = Authority.WriteServer(folder, Authority.Relay("north"))
	testkit.Must(t, err)
	return conf
}

// StartRelay starts a relay, which ends with the test at the latest.
func StartRelay(t *testing.T, conf relay.Config) *Relay {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, err := relay.New(conf, log)
	testkit.Must(t, err)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	stop := func() {
		if cancel(); stopped {
			return
		}
		stopped = true
		select {
		case err := <-done:
			testkit.Must(t, err)
		case <-time.After(testkit.Patience):
			t.Error("the relay does not stop")
		}
	}
	t.Cleanup(stop)
	return &Relay{r, conf, stop, t}
}

// Status returns the status page.
func (r *Relay) Status() (page relay.StatusPage) {
	r.t.Helper()
	response, err := http.Get("http://" + r.HealthAddr() + "/status")
	testkit.Must(r.t, err)
	defer response.Body.Close()
	testkit.Must(r.t, json.NewDecoder(response.Body).Decode(&page))
	return page
}

// Counted waits until the counter has the value. It fails when the counter has passed the value.
func (r *Relay) Counted(counter string, want uint64) {
	r.t.Helper()
	got := uint64(0)
	testkit.Eventually(r.t, fmt.Sprintf("%s is %d", counter, want), func() bool { got = r.Status().Counters[counter]; return got >= want })
	if got != want {
		r.t.Fatalf("%s is %d, want %d", counter, got, want)
	}
}

// PortOf returns the port of an address.
func PortOf(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	testkit.Must(t, err)
	port, err := strconv.Atoi(text)
	testkit.Must(t, err)
	return port
}

// Answers returns the status of a GET on the health listener, or 0 when nobody answers.
func (r *Relay) Answers(path string) int {
	response, err := http.Get("http://" + r.HealthAddr() + path)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// Page returns a page of the health listener.
func (r *Relay) Page(path string) string {
	response, err := http.Get("http://" + r.HealthAddr() + path)
	testkit.Must(r.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	testkit.Must(r.t, err)
	return string(body)
}

// Kept waits until the first ruleset is on disk. A stopping relay waits only for a limited time for
// a slow disk.
func Kept(t *testing.T, conf relay.Config) {
	t.Helper()
	testkit.Eventually(t, "the ruleset is on disk", func() bool {
		_, err := os.Stat(filepath.Join(conf.StateDir, "signed-ruleset.state"))
		return err == nil
	})
}
