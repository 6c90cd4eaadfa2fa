package source

import (
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"spillway.dev/relay/internal/signing"
)

// TestAnOlderValueThatStaysIsTaken checks that an older value is taken once every read has returned
// an older one for half a minute. No value is ignored for ever.
func TestAnOlderValueThatStaysIsTaken(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var taken []string
	rulesets := Rulesets{Log: slog.New(slog.DiscardHandler),
		Taken: func(value signing.Value) { taken = append(taken, string(value.Payload)) }}
	for _, one := range []read{{5, 0, "a"}, {6, time.Second, "b"}, {5, 0, "a"}} {
		rulesets.take(one.message(start))
	}
	rulesets.behind = time.Now().Add(-behindFor)
	rulesets.take(read{6, time.Second, "b"}.message(start)) // so not every read was behind
	rulesets.take(read{5, 0, "a"}.message(start))
	if !slices.Equal(taken, []string{"a", "b"}) {
		t.Errorf("took %v", taken)
	}
	rulesets.behind = time.Now().Add(-behindFor)
	rulesets.take(read{5, 0, "a"}.message(start))
	if !slices.Equal(taken, []string{"a", "b", "a"}) {
		t.Errorf("took %v", taken)
	}
}

// TestAReplicaThatIsBehindIsNotTakenForAChange checks that a lagging replica, which returns the
// previous value again, causes neither a second change nor a replay. A bucket that was wiped counts
// from one again, and its values are taken.
func TestAReplicaThatIsBehindIsNotTakenForAChange(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		reads []read
		want  []string
	}{
		{"the same again", []read{{5, 0, "a"}, {5, 0, "a"}}, []string{"a"}},
		{"the next", []read{{5, 0, "a"}, {6, time.Second, "b"}}, []string{"a", "b"}},
		{"a replica behind", []read{{5, 0, "a"}, {6, time.Second, "b"}, {5, 0, "a"}, {6, time.Second, "b"}}, []string{"a", "b"}},
		{"a bucket that began anew", []read{{5, 0, "a"}, {1, time.Second, "b"}}, []string{"a", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var taken []string
			rulesets := Rulesets{Taken: func(value signing.Value) { taken = append(taken, string(value.Payload)) }}
			for _, one := range c.reads {
				rulesets.take(one.message(start))
			}
			if !slices.Equal(taken, c.want) {
				t.Errorf("took %v, want %v", taken, c.want)
			}
		})
	}
}

// read is one answer to a direct get.
type read struct {
	sequence uint64
	after    time.Duration
	content  string
}

func (r read) message(start time.Time) *nats.Msg {
	return &nats.Msg{Data: []byte(r.content), Header: nats.Header{
		nats.JSSequence:  {strconv.FormatUint(r.sequence, 10)},
		nats.JSTimeStamp: {start.Add(r.after).Format(time.RFC3339Nano)},
	}}
}
