package envoy

import (
	"testing"
	"time"

	"spillway.dev/relay/internal/table"
)

// The time for a connection grows with the round trip, is enough for the farthest cluster that it may
// fail over to, and never takes the time of the other attempts.
func TestHandshakeTime(t *testing.T) {
	for _, test := range []struct{ near, far, wantNear, wantFar time.Duration }{
		{0, 80 * time.Millisecond, 500 * time.Millisecond, 660 * time.Millisecond},
		{0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second},
		{0, 600 * time.Millisecond, 1200 * time.Millisecond, 1700 * time.Millisecond},
		{0, time.Minute, 5 * time.Second, 5 * time.Second},
	} {
		tiers := []table.Tier{{RTT: test.near}, {RTT: test.far}}
		if near, far := handshakeTime(tiers, tiers[0]), handshakeTime(tiers, tiers[1]); near != test.wantNear || far != test.wantFar {
			t.Errorf("round trips %s and %s: %s and %s, want %s and %s", test.near, test.far, near, far, test.wantNear, test.wantFar)
		}
	}
}
