package report

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/testkit"
)

// reports starts a real NATS server with the stream of reports, which accepts messages of at most
// `largest` bytes.
func reports(t *testing.T, largest int32) *nats.Conn {
	t.Helper()
	s, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, StoreDir: t.TempDir(),
		JetStream: true, NoSigs: true, NoLog: true, MaxPayload: 4 * largest})
	testkit.Must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(testkit.Patience) {
		t.Fatal("NATS does not start")
	}
	conn, err := nats.Connect(s.ClientURL())
	testkit.Must(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	testkit.Must(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: names.NatsStreamReports, Subjects: []string{names.NatsSubjectAcksAll},
		MaxMsgSize: largest})
	testkit.Must(t, err)
	return conn
}

// TestHopelessAcknowledgementsDoNotBlock checks that an acknowledgement that is too large for the
// server or the stream, or that cannot be encoded, is dropped and counted. Those behind it are
// stored.
func TestHopelessAcknowledgementsDoNotBlock(t *testing.T) {
	counters := &count.Counters{}
	acks, err := NewAcks(reports(t, 1000), "north", nil, func() {}, counters, slog.New(slog.DiscardHandler))
	testkit.Must(t, err)
	for _, detail := range []string{"first", strings.Repeat("x", 2000), "second", strings.Repeat("x", 5000), "\xff", "third"} {
		acks.Put(&spillwayv1.Acknowledgement{Cluster: "north", Envoy: "north/gate/a", Detail: detail})
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { acks.Run(ctx, time.Second); close(ended) }()
	testkit.Eventually(t, "none waits", func() bool { return acks.Waiting() == 0 })
	cancel()
	<-ended
	if stored, dropped := counters.Get(count.AcknowledgementsStored), counters.Get(count.AcknowledgementsDropped); stored != 3 || dropped != 3 {
		t.Errorf("%d stored, %d dropped, want 3 each", stored, dropped)
	}
}
