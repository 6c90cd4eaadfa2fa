package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/signing"
)

const (
	retryEvery = time.Second
	// checkEvery is how often the key is read even without a notification, because notifications
	// may be lost.
	checkEvery = 5 * time.Second
	askFor     = 3 * time.Second
	// behindFor bounds how long a value older than the one seen is attributed to a lagging replica.
	// After this time the older value is what the key really holds, for example in a bucket that
	// was created again on a server whose clock was set back.
	behindFor = 30 * time.Second
)

// settling lists how long to wait, attempt by attempt, before reading the key again after a
// notification. NATS delivers the notification before the value is stored.
var settling = []time.Duration{time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond,
	100 * time.Millisecond, 300 * time.Millisecond}

// Rulesets follows one cluster's key of the rulesets bucket.
//
// A write to the bucket arrives as a plain message on the key's subject. That message only makes
// the relay read the key by a direct get. Its content is not used, because the bucket may still
// refuse the write (writers use compare-and-set). So there is no consumer that others could read,
// change or delete. Both subjects name the cluster, so NATS permissions can be exact.
type Rulesets struct {
	Conn    *nats.Conn
	Refusal *Refusal // why the server refuses Conn
	Cluster string
	Log     *slog.Logger
	// Taken is called with each new value of the key, in order. When values follow each other
	// faster than they can be read, only the newest is passed.
	Taken func(value signing.Value)
	// Again makes Run pass the newest value to Taken once more, because what it is judged by has
	// changed.
	Again <-chan struct{}

	seen     mark
	again    bool      // the value in `seen` must be passed to Taken once more
	behind   time.Time // since when every read returned an older value
	waiting  string    // why the key cannot be read, as last logged
	answered atomic.Bool
}

// mark identifies one stored value. The time is needed because sequences start again when the
// bucket is created anew.
type mark struct {
	sequence uint64
	stored   int64 // Unix nanoseconds
}

func markOf(header nats.Header) mark {
	sequence, _ := strconv.ParseUint(header.Get(nats.JSSequence), 10, 64)
	stored, _ := time.Parse(time.RFC3339Nano, header.Get(nats.JSTimeStamp))
	return mark{sequence, stored.UnixNano()}
}

// behind reports whether the value is older than the one seen. Any replica of a bucket answers a
// direct get, and a replica may lag. In a bucket that was created anew, lower sequences have later
// storage times, so they do not count as older.
func (m mark) behind(seen mark) bool { return m.sequence < seen.sequence && m.stored < seen.stored }

// Answered reports whether NATS has ever answered a read of the key, even if the key was empty.
func (r *Rulesets) Answered() bool { return r.answered.Load() }

// Run follows the key until the context ends. It waits for NATS, JetStream and the bucket as long
// as necessary.
func (r *Rulesets) Run(ctx context.Context) {
	key := "$KV." + names.NatsBucketRulesets + "." + r.Cluster
	words := make(chan struct{}, 1)
	subscription, err := r.Conn.Subscribe(key, func(*nats.Msg) {
		select {
		case words <- struct{}{}:
		default: // a notification is waiting already; one read serves both
		}
	})
	if err != nil { // only when the connection has been closed for good
		r.Log.Error("cannot listen for rulesets", "error", err)
		return
	}
	defer subscription.Unsubscribe() //nolint:errcheck // the connection may be gone
	connected := r.Conn.StatusChanged(nats.CONNECTED)
	defer r.Conn.RemoveStatusListener(connected)
	attempt, timer := len(settling), time.NewTimer(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-words:
			attempt = 0
			timer.Reset(0)
			continue
		case <-r.Again:
			r.again = true
		case <-connected:
		case <-timer.C:
		}
		timer.Reset(r.look(ctx, key, &attempt))
	}
}

// look reads the key once and returns when to read it again.
func (r *Rulesets) look(ctx context.Context, key string, attempt *int) time.Duration {
	message, err := r.read(ctx, key)
	if err != nil {
		if ctx.Err() == nil && err.Error() != r.waiting {
			r.waiting = err.Error()
			r.Log.Warn("the cluster's ruleset cannot be read", "bucket", names.NatsBucketRulesets, "key", r.Cluster, "error", err)
		}
		return retryEvery
	}
	if r.waiting != "" || !r.answered.Load() {
		r.waiting = ""
		r.Log.Info("reading rulesets", "bucket", names.NatsBucketRulesets, "key", r.Cluster)
	}
	if message != nil && r.take(message) {
		*attempt = len(settling)
	}
	r.answered.Store(true)
	if *attempt < len(settling) {
		*attempt++
		return settling[*attempt-1]
	}
	return checkEvery
}

// read returns the message that the key holds, or nil when it holds none.
func (r *Rulesets) read(ctx context.Context, key string) (*nats.Msg, error) {
	if !r.Conn.IsConnected() {
		// The client calls no handler when an attempt after its first fails after the TLS
		// handshake, so the last error is inspected here.
		r.Refusal.record(r.Conn.LastError())
		return nil, errors.New("NATS is not connected")
	}
	asking, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	message, err := r.Conn.RequestWithContext(asking, "$JS.API.DIRECT.GET.KV_"+names.NatsBucketRulesets+"."+key, nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, errors.New("nobody answers: the bucket does not exist or lacks allow_direct, or a leaf node has lost its hub")
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer in %s; is the user permitted to read the key?", askFor)
	case err != nil:
		return nil, err
	}
	switch status := message.Header.Get("Status"); status {
	case "":
		return message, nil
	case "404":
		return nil, nil
	default:
		return nil, fmt.Errorf("answer %s %s", status, message.Header.Get("Description"))
	}
}

// take passes on a value that is newer than the one seen before, and reports whether the key has
// changed. A deleted key passes nothing on: the ruleset in force stays until it expires.
func (r *Rulesets) take(message *nats.Msg) bool {
	this := markOf(message.Header)
	if this.behind(r.seen) {
		if r.behind.IsZero() {
			r.behind = time.Now()
		}
		if time.Since(r.behind) < behindFor {
			return false
		}
		r.Log.Warn("the key holds an older value than before", "key", r.Cluster, "sequence", this.sequence, "before", r.seen.sequence)
	} else if this == r.seen && !r.again {
		r.behind = time.Time{}
		return false
	}
	r.seen, r.again, r.behind = this, false, time.Time{}
	if operation := message.Header.Get("KV-Operation"); operation != "" {
		r.Log.Warn("the ruleset's key was deleted; the last one stays until it expires", "key", r.Cluster, "operation", operation)
		return true
	}
	r.Taken(signing.Value{Payload: message.Data, Signature: message.Header.Get(names.NatsHeaderSignature),
		KeyID: message.Header.Get(names.NatsHeaderKeyId)})
	return true
}
