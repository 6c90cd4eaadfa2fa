package discovery

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/report"
	"spillway.dev/relay/internal/state"
	"spillway.dev/relay/internal/table"
)

// What the relay of cluster west keeps on disk and tells NATS, of the ruleset that the publisher wrote.
func TestWritePrevious(t *testing.T) {
	folder := os.Getenv("SPILLWAY_PREVIOUS")
	write := func(name string, payload []byte, err error) {
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), payload, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	value, err := os.ReadFile(filepath.Join(folder, "ruleset_west.binpb"))
	ruleset := &spillwayv1.Ruleset{}
	if err == nil {
		err = proto.Unmarshal(value, ruleset)
	}
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_767_225_700, 0)
	ack := &spillwayv1.Acknowledgement{Cluster: "west", Service: "gateway", Envoy: "west~gateway~1", RulesetVersion: ruleset.GetVersion(),
		TypeUrl: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", Outcome: spillwayv1.Outcome_OUTCOME_NACK,
		Detail: "no such cluster", At: timestamppb.New(now)}
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(ack)
	write("acknowledgement.binpb", payload, err)
	payload, err = proto.Marshal(report.NewHeartbeat("west", ruleset.GetVersion(), map[string]int{"gateway": 2, "frontend": 3}, now))
	write("heartbeat.binpb", payload, err)

	kept := []keptPlace{{"names", table.Place{Service: "frontend", Cluster: "west"},
		[]table.Endpoint{{Address: netip.MustParseAddrPort("10.1.0.20:8080"), Zone: "a"}}}}
	store, err := state.Open(filepath.Join(folder, "relay"), "west")
	if err != nil {
		t.Fatal(err)
	}
	payload, err = json.Marshal(kept)
	if err == nil {
		err = store.SaveFound(payload)
	}
	if err == nil {
		err = store.Save(ruleset)
	}
	if err == nil {
		err = store.SaveAcks([]*spillwayv1.Acknowledgement{ack})
	}
	if err != nil {
		t.Fatal(err)
	}
}
