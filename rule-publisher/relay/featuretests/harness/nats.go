package harness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/signing"
	"spillway.dev/relay/internal/signing/signingtest"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/testkit"
)

// StartNATS runs a real NATS server with JetStream inside the test. Port 0 means any port.
func StartNATS(t *testing.T, folder string, port int) *natsserver.Server {
	t.Helper()
	if port == 0 {
		port = testkit.FreePort(t) // reserved, so that it stays free when the server is gone
	}
	return StartNATSWith(t, &natsserver.Options{StoreDir: folder, Port: port})
}

// StartNATSWith runs a real NATS server with JetStream and the options.
func StartNATSWith(t *testing.T, options *natsserver.Options) *natsserver.Server {
	t.Helper()
	options.Host, options.JetStream, options.NoSigs, options.NoLog = "127.0.0.1", true, true, true
	s, err := natsserver.NewServer(options)
	testkit.Must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(testkit.Patience) {
		t.Fatal("NATS does not start")
	}
	return s
}

// Publisher uses NATS in the way in which the real publisher does.
type Publisher struct {
	T         *testing.T
	JetStream jetstream.JetStream
	Bucket    jetstream.KeyValue
}

// NewPublisher connects to the server and creates what a relay needs there.
func NewPublisher(t *testing.T, s *natsserver.Server) *Publisher {
	t.Helper()
	return NewPublisherAt(t, s.ClientURL())
}

// NewPublisherAt is NewPublisher with a URL.
func NewPublisherAt(t *testing.T, url string) *Publisher {
	t.Helper()
	conn, err := nats.Connect(url)
	testkit.Must(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	testkit.Must(t, err)
	bucket, err := js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: names.NatsBucketRulesets, History: 8})
	testkit.Must(t, err)
	_, err = js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: names.NatsStreamReports,
		Subjects: []string{names.NatsSubjectAcksAll, names.NatsSubjectHeartbeatsAll}})
	testkit.Must(t, err)
	return &Publisher{t, js, bucket}
}

// Put publishes the ruleset to north.
func (p *Publisher) Put(ruleset *spillwayv1.Ruleset) {
	p.T.Helper()
	value, err := proto.Marshal(ruleset)
	testkit.Must(p.T, err)
	p.PutBytes(value)
}

// PutBytes signs the value and writes the key of north, as the publisher does.
func (p *Publisher) PutBytes(value []byte) {
	p.T.Helper()
	p.PutSigned(PublisherKey.Sign("north", value))
}

// PutSigned writes the key of north with the given signature, valid or not.
func (p *Publisher) PutSigned(value signing.Value) {
	p.T.Helper()
	_, err := p.JetStream.PublishMsg(p.T.Context(), signingtest.Message("north", value))
	testkit.Must(p.T, err)
}

// Reports reads every message stored under a subject, until `enough` returns true.
func (p *Publisher) Reports(subject string, enough func(data []byte) bool) {
	p.T.Helper()
	consumer, err := p.JetStream.OrderedConsumer(p.T.Context(), names.NatsStreamReports,
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	testkit.Must(p.T, err)
	deadline := time.Now().Add(testkit.Patience)
	for time.Now().Before(deadline) {
		message, err := consumer.Next(jetstream.FetchMaxWait(time.Second))
		if err == nil && enough(message.Data()) {
			return
		}
	}
	p.T.Fatalf("%s: what the test waits for was not reported", subject)
}

// Ack waits for an acknowledgement for which `want` returns true.
func (p *Publisher) Ack(want func(*spillwayv1.Acknowledgement) bool) {
	p.T.Helper()
	p.Reports("spillway.acks.north", func(data []byte) bool {
		ack := &spillwayv1.Acknowledgement{}
		testkit.Must(p.T, proto.Unmarshal(data, ack))
		return want(ack)
	})
}

// Ruleset returns a ruleset that sends gate's requests to shop with the weights of north, south and
// far, in this order.
func Ruleset(version uint64, lasting time.Duration, weights ...uint32) *spillwayv1.Ruleset {
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

// RelayUser returns a user with all permissions of a relay; infra/nats/nats.conf has the same.
func RelayUser(cluster string) *natsserver.User {
	key := "$KV." + names.NatsBucketRulesets + "." + cluster
	fill := func(name string) string { return strings.ReplaceAll(name, "{cluster}", cluster) }
	return &natsserver.User{Username: source.User(cluster), Password: "of-" + cluster, Permissions: &natsserver.Permissions{
		Publish: &natsserver.SubjectPermission{Allow: []string{fill(names.NatsSubjectAcks), fill(names.NatsSubjectHeartbeats),
			"$JS.API.DIRECT.GET.KV_" + names.NatsBucketRulesets + "." + key}},
		Subscribe: &natsserver.SubjectPermission{Allow: []string{key, fill(names.NatsInboxRelay) + ".>"}},
	}}
}

// NATSURL returns the URL of the server with a user's name and password.
func NATSURL(server *natsserver.Server, user, password string) string {
	return strings.Replace(server.ClientURL(), "nats://", "nats://"+user+":"+password+"@", 1)
}
