package featuretests

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/signing"
	"spillway.dev/relay/internal/signing/signingtest"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/testkit"
)

const patience = testkit.Patience

var (
	must       = testkit.Must
	eventually = testkit.Eventually
	backend    = testkit.StartBackend
)

// authority signs every certificate of the tests unless a test says otherwise.
var authority = identitytest.NewAuthority()

// publisherKey signs every ruleset of the tests unless a test says otherwise.
var publisherKey = signingtest.NewKey()

const testTopology = `
clusters: [{name: north, region: r1}, {name: south, region: r2}, {name: far, region: r3}]
links:
  - {source_cluster: north, destination_cluster: south, rtt_ms: 20}
  - {source_cluster: north, destination_cluster: far, rtt_ms: 80}
`

const testEndpoints = `
cluster: north
services:
  - {service: shop, cluster: far, addresses: ["127.0.0.1:9103"]}
  - {service: shop, cluster: north, addresses: ["127.0.0.1:9101"]}
  - {service: shop, cluster: south, addresses: ["127.0.0.1:9102"]}
  - {service: stock, cluster: south, addresses: ["127.0.0.1:9202"]}
`

// startNATS runs a real NATS server with JetStream inside the test. Port 0 means any port.
func startNATS(t *testing.T, folder string, port int) *natsserver.Server {
	t.Helper()
	if port == 0 {
		port = testkit.FreePort(t) // reserved, so that it stays free when the server is gone
	}
	return startNATSWith(t, &natsserver.Options{StoreDir: folder, Port: port})
}

func startNATSWith(t *testing.T, options *natsserver.Options) *natsserver.Server {
	t.Helper()
	options.Host, options.JetStream, options.NoSigs, options.NoLog = "127.0.0.1", true, true, true
	s, err := natsserver.NewServer(options)
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("NATS does not start")
	}
	return s
}

// publisher uses NATS in the way in which the real publisher does.
type publisher struct {
	t      *testing.T
	js     jetstream.JetStream
	bucket jetstream.KeyValue
}

func newPublisher(t *testing.T, s *natsserver.Server) *publisher {
	t.Helper()
	return newPublisherAt(t, s.ClientURL())
}

func newPublisherAt(t *testing.T, url string) *publisher {
	t.Helper()
	conn, err := nats.Connect(url)
	must(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	must(t, err)
	bucket, err := js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: names.NatsBucketRulesets, History: 8})
	must(t, err)
	_, err = js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: names.NatsStreamReports,
		Subjects: []string{names.NatsSubjectAcksAll, names.NatsSubjectHeartbeatsAll}})
	must(t, err)
	return &publisher{t, js, bucket}
}

func (p *publisher) put(ruleset *spillwayv1.Ruleset) {
	p.t.Helper()
	value, err := proto.Marshal(ruleset)
	must(p.t, err)
	p.putBytes(value)
}

// putBytes signs the value and writes the key of north, as the publisher does.
func (p *publisher) putBytes(value []byte) {
	p.t.Helper()
	p.putSigned(publisherKey.Sign("north", value))
}

// putSigned writes the key of north with the given signature, valid or not.
func (p *publisher) putSigned(value signing.Value) {
	p.t.Helper()
	_, err := p.js.PublishMsg(p.t.Context(), signingtest.Message("north", value))
	must(p.t, err)
}

// reports reads every message stored under a subject, until `enough` returns true.
func (p *publisher) reports(subject string, enough func(data []byte) bool) {
	p.t.Helper()
	consumer, err := p.js.OrderedConsumer(p.t.Context(), names.NatsStreamReports,
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	must(p.t, err)
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		message, err := consumer.Next(jetstream.FetchMaxWait(time.Second))
		if err == nil && enough(message.Data()) {
			return
		}
	}
	p.t.Fatalf("%s: what the test waits for was not reported", subject)
}

// ack waits for an acknowledgement for which `want` returns true.
func (p *publisher) ack(want func(*spillwayv1.Acknowledgement) bool) {
	p.t.Helper()
	p.reports("spillway.acks.north", func(data []byte) bool {
		ack := &spillwayv1.Acknowledgement{}
		must(p.t, proto.Unmarshal(data, ack))
		return want(ack)
	})
}

// ruleset returns a ruleset that sends gate's requests to shop with the weights of north, south and
// far, in this order.
func ruleset(version uint64, lasting time.Duration, weights ...uint32) *spillwayv1.Ruleset {
	class := &spillwayv1.TrafficClass{Service: "shop", Method: "GET", PathTemplate: "/items/{id}"}
	rule := &spillwayv1.Rule{SourceCluster: "north", SourceService: "gate", TrafficClass: class}
	for i, weight := range weights {
		rule.Destinations = append(rule.Destinations,
			&spillwayv1.Destination{Cluster: []string{"north", "south", "far"}[i], Weight: weight})
	}
	now := time.Now()
	return &spillwayv1.Ruleset{Id: fmt.Sprint("r", version), Version: version, Policy: "test",
		InputWindow: &spillwayv1.InputWindow{Id: fmt.Sprint("w", version)},
		CreatedAt:   timestamppb.New(now), ExpiresAt: timestamppb.New(now.Add(lasting)),
		Rules: []*spillwayv1.Rule{rule}, TrafficClasses: []*spillwayv1.TrafficClass{class}}
}

// running is a relay that runs inside the test.
type running struct {
	*relay.Relay
	t    *testing.T
	conf relay.Config
	stop func()
}

func testConfig(t *testing.T, natsURL string) relay.Config {
	t.Helper()
	folder := t.TempDir()
	conf := relay.Config{Cluster: "north", Relay: "relay-0", NATS: source.NATS{URL: natsURL}, Identity: identitytest.Identity, XDSListen: "127.0.0.1:0", HealthListen: "127.0.0.1:0",
		StateDir: filepath.Join(folder, "state"), Topology: filepath.Join(folder, "topology.yaml"),
		Endpoints: filepath.Join(folder, "endpoints.yaml")}
	conf.RulesetKeys = filepath.Join(folder, "keys.pem")
	must(t, os.WriteFile(conf.RulesetKeys, publisherKey.PEM, 0o600))
	must(t, os.WriteFile(conf.Topology, []byte(testTopology), 0o600))
	must(t, os.WriteFile(conf.Endpoints, []byte(testEndpoints), 0o600))
	var err error
	conf.XDS, err = authority.WriteServer(folder, authority.Relay("north"))
	must(t, err)
	return conf
}

func startRelay(t *testing.T, conf relay.Config) *running {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, err := relay.New(conf, log)
	must(t, err)
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
			must(t, err)
		case <-time.After(patience):
			t.Error("the relay does not stop")
		}
	}
	t.Cleanup(stop)
	return &running{r, t, conf, stop}
}

func (r *running) status() (page relay.StatusPage) {
	r.t.Helper()
	response, err := http.Get("http://" + r.HealthAddr() + "/status")
	must(r.t, err)
	defer response.Body.Close()
	must(r.t, json.NewDecoder(response.Body).Decode(&page))
	return page
}

// counted waits until the counter has the value. It fails when the counter has passed the value.
func (r *running) counted(counter string, want uint64) {
	r.t.Helper()
	got := uint64(0)
	eventually(r.t, fmt.Sprintf("%s is %d", counter, want), func() bool { got = r.status().Counters[counter]; return got >= want })
	if got != want {
		r.t.Fatalf("%s is %d, want %d", counter, got, want)
	}
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	must(t, err)
	port, err := strconv.Atoi(text)
	must(t, err)
	return port
}
