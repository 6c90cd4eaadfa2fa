package report

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
)

const (
	queueLimit = 10_000
	retryAfter = time.Second
)

// Acks publishes acknowledgements to JetStream, each until the stream has stored it.
type Acks struct {
	conn     *nats.Conn
	subject  string
	queue    *Queue[*spillwayv1.Acknowledgement]
	counters *count.Counters
	log      *slog.Logger
}

// NewAcks for the relay's cluster.
func NewAcks(conn *nats.Conn, cluster string, counters *count.Counters, log *slog.Logger) *Acks {
	return &Acks{
		conn:    conn,
		subject: strings.ReplaceAll(names.NatsSubjectAcks, "{cluster}", cluster),
		queue: NewQueue[*spillwayv1.Acknowledgement](queueLimit, func() {
			counters.Add(count.AcknowledgementsDropped)
		}),
		counters: counters,
		log:      log,
	}
}

// Put an acknowledgement in the queue; never blocks.
func (a *Acks) Put(ack *spillwayv1.Acknowledgement) { a.queue.Put(ack) }

// Waiting is how many are not stored yet.
func (a *Acks) Waiting() int { return a.queue.Len() }

// Run until the context ends.
func (a *Acks) Run(ctx context.Context) {
	failing := false
	for {
		ack, ok := a.queue.Take()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-a.queue.Signal():
			}
			continue
		}
		for {
			err := a.publish(ctx, ack)
			if err == nil {
				failing = false
				a.counters.Add(count.AcknowledgementsStored)
				break
			}
			if !failing && ctx.Err() == nil {
				a.log.Warn("acknowledgements wait in the queue", "error", err)
			}
			failing = true
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryAfter):
			}
		}
	}
}

func (a *Acks) publish(ctx context.Context, ack *spillwayv1.Acknowledgement) error {
	if !a.conn.IsConnected() {
		return nats.ErrConnectionReconnecting
	}
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(ack)
	if err != nil {
		return err
	}
	js, err := jetstream.New(a.conn)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	// The id lets the stream drop what arrives twice because its confirmation was lost.
	sum := sha256.Sum256(payload)
	_, err = js.Publish(asking, a.subject, payload, jetstream.WithMsgID(hex.EncodeToString(sum[:16])))
	return err
}
