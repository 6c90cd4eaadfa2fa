package report

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"sync"
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
	batch      = 256 // published before their confirmations are awaited
	retryAfter = time.Second
	confirmIn  = 3 * time.Second
)

// Acks publishes acknowledgements to JetStream, and retries each until the stream has stored it.
type Acks struct {
	conn    *nats.Conn
	js      jetstream.JetStream
	subject string
	queue   *Queue[*spillwayv1.Acknowledgement]
	// forget discards what was left over from before the restart. It is called once.
	forget   func()
	counters *count.Counters
	log      *slog.Logger
}

// NewAcks creates the publisher for the relay's cluster. Acknowledgements left over from before the
// restart go first. allStored is called when, for the first time, none is waiting any more.
func NewAcks(conn *nats.Conn, cluster string, left []*spillwayv1.Acknowledgement, allStored func(), counters *count.Counters, log *slog.Logger) (*Acks, error) {
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncTimeout(confirmIn))
	if err != nil {
		return nil, err
	}
	a := &Acks{
		conn:    conn,
		js:      js,
		subject: strings.ReplaceAll(names.NatsSubjectAcks, "{cluster}", cluster),
		queue: NewQueue[*spillwayv1.Acknowledgement](queueLimit, func() {
			counters.Add(count.AcknowledgementsDropped)
		}),
		forget:   sync.OnceFunc(allStored),
		counters: counters,
		log:      log,
	}
	for _, ack := range left {
		a.Put(ack)
	}
	return a, nil
}

// Put adds an acknowledgement to the queue. It never blocks.
func (a *Acks) Put(ack *spillwayv1.Acknowledgement) { a.queue.Put(ack) }

// Waiting returns how many acknowledgements are not stored yet.
func (a *Acks) Waiting() int { return a.queue.Len() }

// Left returns the acknowledgements that are not stored yet, once Run has returned.
func (a *Acks) Left() []*spillwayv1.Acknowledgement { return a.queue.First(queueLimit) }

// Run stores acknowledgements until the context ends. It then tries once more, for at most `last`,
// to store those that wait.
func (a *Acks) Run(ctx context.Context, last time.Duration) {
	failing := false
	for ctx.Err() == nil {
		waiting := a.queue.First(batch)
		if len(waiting) == 0 {
			a.forget()
			select {
			case <-ctx.Done():
			case <-a.queue.Signal():
			}
			continue
		}
		err := a.store(ctx, waiting)
		if err != nil {
			if !failing && ctx.Err() == nil {
				a.log.Warn("acknowledgements wait in the queue", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
		}
		failing = err != nil
	}
	flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), last)
	defer cancel()
	for waiting := a.queue.First(batch); len(waiting) > 0; waiting = a.queue.First(batch) {
		if a.store(flushing, waiting) != nil {
			return
		}
	}
}

// store publishes all acknowledgements, then awaits the confirmations in order and removes each
// confirmed one from the queue. It returns at the first failure that may be temporary. An
// acknowledgement published twice, because its confirmation was lost, has the same message id, so
// the stream drops the second. One that can never be stored is dropped, so that it does not block
// those behind it.
func (a *Acks) store(ctx context.Context, acks []*spillwayv1.Acknowledgement) error {
	if !a.conn.IsConnected() {
		return nats.ErrConnectionReconnecting
	}
	futures, refused := make([]jetstream.PubAckFuture, len(acks)), make([]error, len(acks))
	for i, ack := range acks {
		if futures[i], refused[i] = a.publish(ack); refused[i] != nil && !hopeless(refused[i]) {
			return refused[i]
		}
	}
	for i, ack := range acks {
		err := refused[i]
		if err == nil {
			err = confirmed(ctx, futures[i])
		}
		switch {
		case err == nil:
			a.counters.Add(count.AcknowledgementsStored)
		case hopeless(err):
			a.counters.Add(count.AcknowledgementsDropped)
			a.log.Error("an acknowledgement can never be stored, and is dropped", "envoy", ack.GetEnvoy(), "error", err)
		default:
			return err
		}
		a.queue.Done(ack)
	}
	return nil
}

func (a *Acks) publish(ack *spillwayv1.Acknowledgement) (jetstream.PubAckFuture, error) {
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(ack)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(payload)
	return a.js.PublishAsync(a.subject, payload, jetstream.WithMsgID(hex.EncodeToString(sum[:16])))
}

// hopeless reports whether the same message would always fail: it is larger than the server or the
// stream accepts, or cannot be encoded as protobuf.
func hopeless(err error) bool {
	var refusal *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, proto.Error) ||
		errors.As(err, &refusal) && refusal.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum
}

// confirmed waits for the stream's confirmation, its refusal, or the end of the context.
func confirmed(ctx context.Context, future jetstream.PubAckFuture) error {
	select {
	case <-future.Ok():
		return nil
	case err := <-future.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
