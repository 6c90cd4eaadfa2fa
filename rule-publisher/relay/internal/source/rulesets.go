package source

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"spillway.dev/contracts/names"
)

const (
	retryEvery = time.Second
	// A watch can end without a word when its stream is made anew; the key is therefore also read
	// at this interval.
	checkEvery = 5 * time.Second
)

// Rulesets watches one cluster's key of the rulesets bucket.
type Rulesets struct {
	Conn    *nats.Conn
	Cluster string
	Log     *slog.Logger
	// Taken is called with each new value of the key, in order.
	Taken func(value []byte)

	seen    mark
	waiting string // why there is no watch, as last logged
}

// mark names one value: revisions begin anew when the bucket does.
type mark struct {
	revision uint64
	created  int64 // Unix nanoseconds: times of the watch and of a read differ in zone
}

// Run until the context ends. It waits for NATS, JetStream and the bucket as long as it takes.
func (r *Rulesets) Run(ctx context.Context) {
	for {
		err := r.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != r.waiting {
			r.waiting = err.Error()
			r.Log.Warn("waiting for the rulesets bucket", "bucket", names.NatsBucketRulesets, "error", err)
		}
		if !pause(ctx, retryEvery) {
			return
		}
	}
}

func (r *Rulesets) watch(ctx context.Context) error {
	if !r.Conn.IsConnected() {
		return errors.New("NATS is not connected")
	}
	js, err := jetstream.New(r.Conn)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	bucket, err := js.KeyValue(asking, names.NatsBucketRulesets)
	if err != nil {
		return err
	}
	watcher, err := bucket.Watch(ctx, r.Cluster)
	if err != nil {
		return err
	}
	defer watcher.Stop() //nolint:errcheck // the connection may be gone
	r.waiting = ""
	r.Log.Info("watching rulesets", "bucket", names.NatsBucketRulesets, "key", r.Cluster)
	return r.follow(ctx, bucket, watcher)
}

// follow returns when the watch has to be made anew.
func (r *Rulesets) follow(ctx context.Context, bucket jetstream.KeyValue, watcher jetstream.KeyWatcher) error {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case entry, ok := <-watcher.Updates():
			if !ok {
				return errors.New("the watch ended")
			}
			if entry != nil { // nil: the initial values are through
				r.take(entry)
			}
		case <-ticker.C:
			if missed, err := r.check(ctx, bucket); missed || err != nil {
				return err
			}
		}
	}
}

// check reads the key itself; `missed` is true when the watch has not told of the value.
func (r *Rulesets) check(ctx context.Context, bucket jetstream.KeyValue) (missed bool, err error) {
	if !r.Conn.IsConnected() {
		return false, nil // the client resumes the watch by itself
	}
	asking, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	entry, err := bucket.Get(asking, r.Cluster)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
		return false, nil
	case err != nil:
		return false, err
	}
	return r.take(entry), nil
}

// take passes a value on that was not seen before. A deleted key steers nothing: what was in force
// stays until it expires.
func (r *Rulesets) take(entry jetstream.KeyValueEntry) bool {
	this := mark{entry.Revision(), entry.Created().UnixNano()}
	if this == r.seen {
		return false
	}
	r.seen = this
	if entry.Operation() != jetstream.KeyValuePut {
		r.Log.Warn("the ruleset's key was deleted; the last one stays until it expires", "key", r.Cluster)
		return true
	}
	r.Taken(entry.Value())
	return true
}
