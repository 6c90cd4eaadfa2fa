package relay

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/control"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/signing"
	"spillway.dev/relay/internal/table"
)

// keepEvery is the period of looking for acknowledgements that wait for NATS.
const keepEvery = 5 * time.Second

// kept returns what is known from before the restart. The ruleset is verified like one that comes
// over NATS. If its key has been removed since, it does not steer any more. Its version still
// counts as the floor: only higher versions are taken.
func (r *Relay) kept(clusters []string) (kept control.Kept) {
	value, err := r.store.Load()
	if value == nil && err == nil {
		return kept
	}
	ruleset := &spillwayv1.Ruleset{}
	if err == nil {
		err = proto.Unmarshal(value.Payload, ruleset)
	}
	if err == nil {
		kept.Highest = ruleset.GetVersion()
		err = r.keys.Keys().Verify(r.conf.Cluster, clusters, *value)
	}
	if err == nil {
		kept.Rules, err = table.ParseRules(ruleset, r.conf.Cluster)
	}
	if err == nil {
		kept.Trial, err = table.ParseTrial(ruleset, kept.Rules, r.conf.Cluster)
	}
	if err != nil {
		r.counters.Add(count.StateErrors)
		r.log.Error("the ruleset kept on disk cannot be used", "ruleset_version", kept.Highest, "error", err)
		kept.Rules, kept.Trial = nil, nil
		return kept
	}
	kept.Signer = value.KeyID
	r.log.Info("the ruleset kept on disk is taken up", "ruleset_version", kept.Highest, "expires_at", kept.Rules.ExpiresAt)
	return kept
}

// signed is a ruleset to be saved.
type signed struct {
	value   signing.Value
	version uint64
}

// save stores the ruleset, which is served already.
func (r *Relay) save(ruleset signed) {
	if err := r.store.Save(ruleset.value); err != nil {
		r.counters.Add(count.StateErrors)
		r.log.Error("the ruleset is served but cannot be kept over a restart", "ruleset_version", ruleset.version, "error", err)
	}
}

func (r *Relay) keptAcks() []*spillwayv1.Acknowledgement {
	acks, err := r.store.LoadAcks()
	if err != nil {
		r.counters.Add(count.StateErrors)
		r.log.Error("acknowledgements kept on disk cannot be used", "error", err)
		return nil
	}
	return acks
}

// forgetAcks removes the acknowledgements on disk, because NATS has stored them.
func (r *Relay) forgetAcks() {
	if err := r.store.SaveAcks(nil); err != nil {
		r.counters.Add(count.StateErrors)
		r.log.Error("acknowledgements that are stored stay on disk, and will be sent again", "error", err)
	}
}

// keepAcks stores the acknowledgements that NATS has not stored, for the next start.
func (r *Relay) keepAcks() {
	left := r.acks.Left()
	if len(left) > 0 {
		r.log.Warn("acknowledgements that NATS has not stored are kept on disk", "count", len(left))
	}
	if err := r.store.SaveAcks(left); err != nil {
		r.log.Error("acknowledgements are lost", "count", len(left), "error", err)
	}
}

// keepWaitingAcks writes acknowledgements to disk that NATS has not stored for a while. So a relay
// that is killed loses only the newest. It removes them from disk when NATS has stored all.
func (r *Relay) keepWaitingAcks(ctx context.Context) {
	every := time.NewTicker(keepEvery)
	defer every.Stop()
	var newest *spillwayv1.Acknowledgement // the newest on disk; nil: none
	before := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		left, stored := r.acks.Left(), r.counters.Get(count.AcknowledgementsStored)
		switch waits := stored == before; {
		case len(left) == 0 && newest != nil:
			r.forgetAcks()
			newest = nil
		case len(left) > 0 && waits && left[len(left)-1] != newest:
			newest = left[len(left)-1]
			if err := r.store.SaveAcks(left); err != nil {
				r.counters.Add(count.StateErrors)
				r.log.Error("acknowledgements that wait cannot be kept over a crash", "count", len(left), "error", err)
			}
		}
		before = stored
	}
}
